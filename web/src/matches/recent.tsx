/**
 * Pairs of a recency join, drawn: the rows of both sides as bars, and an arrow from each archive row
 * to the live rows that it was recent for.  It ends where the live row does: there the pair is known.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askJson, messageOf } from "../api";
import type { Run } from "../query/run";
import { SERIES } from "../ui/preferences";
import { count, instantOf, spot, stretch } from "../ui/numbers";
import { lanesOf } from "./lanes";
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

export function RecentView({ run }: { run: Run }) {
  const [found, setFound] = useState<Pairs | null>(null);
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState(-1);
  useEffect(() => {
    const stop = new AbortController();
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    askJson<Pairs>("v1/matches", { sql: run.sql, ...params, mode: "pairs", limit: MATCHES_MAX }, stop.signal).then(setFound, (error: unknown) => stop.signal.aborted || setProblem(messageOf(error)));
    return () => stop.abort();
  }, [run]);
  const { rows, arrows } = useMemo(() => {
    const made = rowsOfPairs(found ?? NONE);
    return { rows: made.rows.map(drawnOf), arrows: made.arrows };
  }, [found]);
  const lanes = useMemo(() => lanesOf(rows.map((row) => ({ first: row.from, last: row.to, key: row.key })), (span) => span.key), [rows]);
  const shown = useMemo<Arrow[]>(() => arrows.map(([from, to, pair]) => ({ from, to, on: pair === chosen })), [arrows, chosen]);
  if (problem) return <p class="banner" role="alert">{problem}</p>;
  if (!found) return <p class="empty" role="status">Looking for pairs…</p>;
  if (!found.pairs.length) return <p class="empty"><b>No pair.</b></p>;
  const integers = /^-?\d+$/.test(rows[0]?.first ?? "");
  return (
    <div class="matches">
      <div class="options">
        <span>{count(found.pairs.length)} pairs{found.truncated ? " (the first)" : ""}</span>
        {found.sides.map((name, i) => <span key={name} class="legend"><i class="swatch" style={{ background: `var(--${SERIES[i % SERIES.length]})` }} /> {name}{i ? "" : " (live)"}</span>)}
      </div>
      <div class="matchbody">
        <Timeline bars matches={rows} lane={lanes.lane} groups={lanes.groups} variables={found.sides} hidden={new Set()} chosen={-1} choose={(row) => setChosen(arrows.find(([from, to]) => from === row || to === row)?.[2] ?? -1)} integers={integers} ranged={() => undefined} arrows={shown} />
        <List found={found} integers={integers} chosen={chosen} choose={setChosen} />
      </div>
    </div>
  );
}

function List({ found, integers, chosen, choose }: { found: Pairs; integers: boolean; chosen: number; choose: (i: number) => void }) {
  const list = useRef<HTMLTableSectionElement>(null);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  const from = Math.max(0, Math.min(found.pairs.length - 300, chosen - 150));
  const short = (at: number, length: number) => spot(at, integers, Math.max(20_000, length));
  return (
    <div class="scroll matchlist">
      <table class="list" aria-label="Pairs">
        <thead><tr>{found.keys.map((name) => <th key={name}>{name}</th>)}<th>Began</th><th>Known</th><th class="number">Length</th></tr></thead>
        <tbody ref={list}>
          {found.pairs.slice(from, from + 300).map((pair, j) => {
            const i = from + j;
            const times = pair.times.flatMap((one) => one ?? []).map(instantOf);
            const [first, last] = [Math.min(...times), Math.max(...times)];
            return (
              <tr key={i} aria-selected={i === chosen} class={i === chosen ? "on" : ""} onClick={() => choose(i)}>
                {pair.key.map((value, k) => <td key={k}>{value === null ? "NULL" : String(value)}</td>)}
                <td><button type="button" class="linklike" onClick={() => choose(i)}>{short(first, last - first)}</button></td>
                <td>{short(last, last - first)}</td>
                <td class="number">{stretch(first, last, integers)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
