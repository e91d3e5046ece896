/**
 * Pairs of a recency join, drawn: the rows of both sides as bars, and an arrow from each archive row
 * to the live rows that it was recent for.  It ends where the live row does: there the pair is known.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { askJson } from "../api";
import type { Run } from "../query/run";
import { SERIES } from "../ui/preferences";
import { Loading } from "../ui/loading";
import { count, instantOf } from "../ui/numbers";
import { Refused } from "../query/trouble";
import { lanesOf } from "./lanes";
import { List, useChosen } from "./list";
import { type Pairs, type Row, rowsOfPairs } from "./pairs";
import { type Arrow, Timeline } from "./timeline";
import { type Drawn, MATCHES_MAX } from "./view";

const NONE: Pairs = { sides: [], keys: [], pairs: [], truncated: false };

/** A row of a side, as the timeline draws it: alone in lanes of its key and side. */
function drawnOf(row: Row, i: number): Drawn {
  const { first, last } = row;
  const key = [row.key, row.side].filter(Boolean).join(" · ");
  return { number: i + 1, partition: [], first, last, events: 0, variables: { [row.side]: { first, last, count: 1 } }, from: instantOf(first), to: instantOf(last), key };
}

/** A pair, as the list shows it: from the first to the last of its times. */
function pairOf({ key, times }: Pairs["pairs"][number], i: number): Drawn {
  const all = times.flatMap((one) => one ?? []).map(instantOf);
  return { number: i + 1, partition: key, first: "", last: "", events: 0, variables: {}, from: Math.min(...all), to: Math.max(...all), key: "" };
}

export function RecentView({ run }: { run: Run }) {
  const [found, setFound] = useState<Pairs | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const { chosen, choose, onKey, steps } = useChosen(found?.pairs.length ?? 0);
  useEffect(() => {
    const stop = new AbortController();
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    askJson<Pairs>("v1/matches", { sql: run.sql, ...params, mode: "pairs", limit: MATCHES_MAX }, stop.signal).then(setFound, (error: unknown) => stop.signal.aborted || setProblem(error));
    return () => stop.abort();
  }, [run]);
  const { rows, arrows, pairs } = useMemo(() => {
    const made = rowsOfPairs(found ?? NONE);
    return { rows: made.rows.map(drawnOf), arrows: made.arrows, pairs: (found ?? NONE).pairs.map(pairOf) };
  }, [found]);
  const lanes = useMemo(() => lanesOf(rows.map((row) => ({ first: row.from, last: row.to, key: row.key })), (span) => span.key), [rows]);
  const shown = useMemo<Arrow[]>(() => arrows.map(([from, to, pair]) => ({ from, to, on: pair === chosen })), [arrows, chosen]);
  if (problem) return <Refused run={run} error={problem} />;
  if (!found) return <Loading what="Looking for pairs…" />;
  if (!found.pairs.length) return <p class="empty"><b>No pair.</b></p>;
  const integers = /^-?\d+$/.test(rows[0]?.first ?? "");
  return (
    <div class="matches" onKeyDown={onKey}>
      <div class="options">
        <span>{found.truncated ? "the first " : ""}{count(found.pairs.length)} pairs</span>
        {found.sides.map((name, i) => <span key={name} class="legend"><i class="swatch" style={{ background: `var(--${SERIES[i % SERIES.length]})` }} /> {name}{i ? "" : " (live)"}</span>)}
        {steps}
      </div>
      <div class="matchbody">
        <Timeline bars matches={rows} lane={lanes.lane} groups={lanes.groups} variables={found.sides} hidden={new Set()} chosen={-1} choose={(row) => choose(arrows.find(([from, to]) => from === row || to === row)?.[2] ?? -1)} integers={integers} ranged={() => undefined} arrows={shown} />
        <List label="Pairs" matches={pairs} keys={found.keys} integers={integers} chosen={chosen} choose={choose} />
      </div>
    </div>
  );
}
