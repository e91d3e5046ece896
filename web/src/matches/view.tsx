/**
 * Matches, drawn: a lane for each, a mark for each variable's first and last event, in colour and
 * shape.  Below them is every event of the chosen one.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { askJson } from "../api";
import type { Run } from "../query/run";
import { Loading } from "../ui/loading";
import { count, instantOf } from "../ui/numbers";
import { Refused } from "../query/trouble";
import { lanesOf } from "./lanes";
import { Events, Glyph } from "./events";
import { Band } from "./band";
import { List, useChosen } from "./list";
import { Timeline } from "./timeline";

export interface Outlined {
  number: number;
  partition: (string | number | boolean | null)[];
  first: string;
  last: string;
  events: number;
  variables: Record<string, { first: string; last: string; count: number }>;
}

interface Wire {
  time: string;
  stream: string | null;
  partition: string[];
  variables: string[];
  matches: Outlined[];
  truncated: boolean;
  conditions?: { variable: string; hits: number | null; reason?: string }[];
}

export interface Drawn extends Outlined {
  from: number;
  to: number;
  key: string;
}

export const MATCHES_MAX = 2000;

export function MatchesView({ run }: { run: Run }) {
  const [wire, setWire] = useState<Wire | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const [range, setRange] = useState<[number, number] | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    askJson<Wire>("v1/matches", { sql: run.sql, ...params, limit: MATCHES_MAX }, stop.signal).then(setWire, (error: unknown) => stop.signal.aborted || setProblem(error));
    return () => stop.abort();
  }, [run]);

  const drawn = useMemo<Drawn[]>(
    () => (wire?.matches ?? []).map((match) => ({ ...match, from: instantOf(match.first), to: instantOf(match.last), key: match.partition.map(String).join(" · ") })),
    [wire],
  );
  const lanes = useMemo(() => lanesOf(drawn.map((match) => ({ first: match.from, last: match.to, key: match.key })), (span) => span.key), [drawn]);

  const { chosen, choose, onKey, steps } = useChosen(drawn.length);

  if (problem) return <Refused run={run} error={problem} />;
  if (!wire) return <Loading what="Looking for matches…" />;
  if (!drawn.length) return <NoMatch wire={wire} />;
  const toggle = (name: string) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  const one = drawn[chosen];
  const integers = /^-?\d+$/.test(drawn[0]?.first ?? "");
  return (
    <div class="matches" onKeyDown={onKey}>
      <div class="options">
        <span>{wire.truncated ? "the first " : ""}{count(drawn.length)} matches</span>
        <fieldset>
          <legend class="quiet">Variables</legend>
          {wire.variables.map((name, i) => (
            <label key={name} class={hidden.has(name) ? "legend off" : "legend"}>
              <input type="checkbox" checked={!hidden.has(name)} onChange={() => toggle(name)} />
              <Glyph of={i} /> {name}
            </label>
          ))}
        </fieldset>
        {steps}
      </div>
      <div class="matchbody">
        <div class="over">
          {wire.stream && range && <Band stream={wire.stream} range={range} integers={integers} />}
          <Timeline matches={drawn} lane={lanes.lane} groups={lanes.groups} variables={wire.variables} hidden={hidden} chosen={chosen} choose={choose} integers={integers} ranged={setRange} />
        </div>
        <List label="Matches" matches={drawn} keys={wire.partition} integers={integers} chosen={chosen} choose={choose} />
      </div>
      {one && <Events run={run} match={one} time={wire.time} variables={wire.variables} partition={wire.partition} integers={integers} close={() => choose(-1)} />}
    </div>
  );
}

/** Which condition holds for how many events, so that one sees where a pattern fails. */
function NoMatch({ wire }: { wire: Wire }) {
  return (
    <div class="empty">
      <p><b>No match.</b> Events that satisfy each condition on its own:</p>
      <table class="list">
        <tbody>
          {(wire.conditions ?? []).map((one) => (
            <tr key={one.variable}>
              <td><code>{one.variable}</code></td>
              <td class="number">{one.hits === null ? "–" : count(one.hits)}</td>
              <td class="quiet">{one.hits === 0 ? "no event at all, so there cannot be a match" : (one.reason ?? "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {wire.conditions?.every((one) => one.hits === null || one.hits > 0) && <p class="quiet">Each condition is satisfied somewhere; the order of events, WITHIN or events in between rule out a match.</p>}
    </div>
  );
}
