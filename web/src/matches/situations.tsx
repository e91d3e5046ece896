/**
 * Situations, drawn: a lane for each match, in it a bar for each situation from its start to its end.
 *
 * They are in the answer itself, as columns `name_started` and `name_ended`, where the clause has no
 * measures of its own.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Run } from "../query/run";
import { Loading } from "../ui/loading";
import { count, instantOf, spot, stretch } from "../ui/numbers";
import { SERIES } from "../ui/preferences";
import { ENDED, lanesOf, situationsOf, STARTED } from "./lanes";
import { List, useChosen } from "./list";
import { Timeline } from "./timeline";
import { type Drawn, MATCHES_MAX } from "./view";

export function isSituations(sql: string): boolean {
  return /\bMATCH_SITUATIONS\b/i.test(sql);
}

export function SituationsView({ run }: { run: Run }) {
  const heads = run.answer.columns.value;
  const names = useMemo(() => situationsOf((heads ?? []).map((head) => head.name)), [heads]);
  const [drawn, setDrawn] = useState<Drawn[] | null>(null);
  const { chosen, choose, onKey, steps } = useChosen(drawn?.length ?? 0);
  const keys = useMemo(() => (heads ?? []).map((head) => head.name).filter((name) => !names.some((one) => name === one + STARTED || name === one + ENDED)), [heads, names]);
  const rows = run.answer.rows.value;
  const ended = Boolean(run.answer.end.value);
  useEffect(() => {
    if (!heads || !ended || !names.length) return undefined;
    let live = true;
    void (async () => {
      const most = Math.min(MATCHES_MAX, rows);
      const texts = new Map<string, (string | null)[]>();
      for (const [i, head] of heads.entries()) texts.set(head.name, await run.answer.texts(i, most));
      const made = Array.from({ length: most }, (_, row) => {
        const at = (name: string) => texts.get(name)?.[row] ?? null;
        const variables: Drawn["variables"] = {};
        for (const name of names) {
          const [first, last] = [at(name + STARTED), at(name + ENDED)];
          if (first !== null) variables[name] = { first, last: last ?? first, count: 1 };
        }
        const all = Object.values(variables);
        const [from, to] = [Math.min(...all.map((one) => instantOf(one.first))), Math.max(...all.map((one) => instantOf(one.last)))];
        return { number: row + 1, partition: keys.map(at), first: "", last: "", events: 0, variables, from, to, key: keys.map((name) => at(name) ?? "NULL").join(" · ") };
      });
      if (live) setDrawn(made.filter((one) => Number.isFinite(one.from)));
    })();
    return () => {
      live = false;
    };
  }, [run, heads, ended, names]);
  const lanes = useMemo(() => lanesOf((drawn ?? []).map((one) => ({ first: one.from, last: one.to, key: one.key })), (span) => span.key), [drawn]);
  if (!ended) return <Loading what="Looking for matches…" />;
  if (!names.length) return <p class="empty">Situations are drawn from their start and end: use <code>SELECT *</code> and no <code>MEASURES</code>.</p>;
  if (!drawn) return <Loading />;
  if (!drawn.length) return <p class="empty"><b>No match.</b></p>;
  const one = drawn[chosen];
  const integers = /^-?\d+$/.test(Object.values(drawn[0]?.variables ?? {})[0]?.first ?? "");
  return (
    <div class="matches" onKeyDown={onKey}>
      <div class="options">
        <span>{rows > MATCHES_MAX ? "the first " : ""}{count(drawn.length)} matches</span>
        {names.map((name, i) => <span key={name} class="legend"><i class="swatch" style={{ background: `var(--${SERIES[i % SERIES.length]})` }} /> {name}</span>)}
        {steps}
      </div>
      <div class="matchbody">
        <Timeline bars matches={drawn} lane={lanes.lane} groups={lanes.groups} variables={names} hidden={new Set()} chosen={chosen} choose={choose} integers={integers} ranged={() => undefined} />
        <List label="Matches" matches={drawn} keys={keys} integers={integers} chosen={chosen} choose={choose} />
      </div>
      {one && (
        <section class="chosen" aria-label="Situations of the match">
          <h2>{one.key ? `${one.key} ` : ""}#{one.number}</h2>
          <table class="list">
            <thead><tr><th>Situation</th><th>Start</th><th>End</th><th class="number">Length</th></tr></thead>
            <tbody>
              {Object.entries(one.variables).map(([name, { first, last }]) => (
                <tr key={name}><td>{name}</td><td>{spot(instantOf(first), integers)}</td><td>{spot(instantOf(last), integers)}</td><td class="number">{stretch(instantOf(first), instantOf(last), integers)}</td></tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}
