/**
 * Matches, drawn: a lane for each, a mark for each variable's first and last event, in colour and
 * shape.  A click shows every event of a match.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askJson, messageOf } from "../api";
import type { Run } from "../query/run";
import { SERIES } from "../ui/preferences";
import { count, instantOf, spot, stretch } from "../ui/numbers";
import { GLYPHS, lanesOf, SHAPES } from "./lanes";
import { Events } from "./events";
import { Band } from "./band";
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
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState(-1);
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    askJson<Wire>("v1/matches", { sql: run.sql, ...params, limit: MATCHES_MAX }, stop.signal).then(setWire, (error: unknown) => stop.signal.aborted || setProblem(messageOf(error)));
    return () => stop.abort();
  }, [run]);

  const drawn = useMemo<Drawn[]>(
    () => (wire?.matches ?? []).map((match) => ({ ...match, from: instantOf(match.first), to: instantOf(match.last), key: match.partition.map(String).join(" · ") })),
    [wire],
  );
  const lanes = useMemo(() => lanesOf(drawn.map((match) => ({ first: match.from, last: match.to, key: match.key })), (span) => span.key), [drawn]);

  if (problem) return <p class="banner" role="alert">{problem}</p>;
  if (!wire) return <p class="empty" role="status">Looking for matches…</p>;
  if (!drawn.length) return <NoMatch wire={wire} />;
  const move = (by: number) => setChosen(Math.max(0, Math.min(drawn.length - 1, chosen + by)));
  const onKey = (event: KeyboardEvent) => {
    if (event.target instanceof HTMLInputElement) return;
    if (event.key === "n") move(1);
    else if (event.key === "p") move(-1);
    else if (event.key === "Escape") setChosen(-1);
  };
  const toggle = (name: string) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  const one = drawn[chosen];
  const integers = /^-?\d+$/.test(drawn[0]?.first ?? "");
  return (
    <div class="matches" ref={box} onKeyDown={onKey}>
      <div class="options">
        <span>{count(drawn.length)} matches{wire.truncated ? " (the first)" : ""}</span>
        <fieldset>
          <legend class="quiet">Variables</legend>
          {wire.variables.map((name, i) => (
            <label key={name} class={hidden.has(name) ? "legend off" : "legend"}>
              <input type="checkbox" checked={!hidden.has(name)} onChange={() => toggle(name)} />
              <span style={{ color: `var(--${SERIES[i % SERIES.length]})` }} aria-hidden="true">{GLYPHS[SHAPES[i % SHAPES.length] ?? "circle"]}</span> {name}
            </label>
          ))}
        </fieldset>
        <span class="space" />
        <button type="button" disabled={chosen <= 0} onClick={() => move(-1)} title="key p">Previous</button>
        <span class="quiet">{chosen >= 0 ? `${count(chosen + 1)} of ${count(drawn.length)}` : "none chosen"}</span>
        <button type="button" disabled={chosen >= drawn.length - 1} onClick={() => move(1)} title="key n">Next</button>
      </div>
      <div class="matchbody">
        <div class="over">
          {wire.stream && range && <Band stream={wire.stream} range={range} integers={integers} />}
          <Timeline matches={drawn} lane={lanes.lane} groups={lanes.groups} variables={wire.variables} hidden={hidden} chosen={chosen} choose={setChosen} integers={integers} ranged={setRange} />
        </div>
        <List matches={drawn} integers={integers} partition={wire.partition} chosen={chosen} choose={setChosen} />
      </div>
      {one && <Events run={run} match={one} time={wire.time} variables={wire.variables} partition={wire.partition} integers={integers} close={() => setChosen(-1)} />}
    </div>
  );
}

function List({ matches, integers, partition, chosen, choose }: { matches: Drawn[]; integers: boolean; partition: string[]; chosen: number; choose: (i: number) => void }) {
  const list = useRef<HTMLTableSectionElement>(null);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  const from = Math.max(0, Math.min(matches.length - 300, chosen - 150));
  return (
    <div class="scroll matchlist">
      <table class="list" aria-label="Matches">
        <thead><tr>{partition.map((name) => <th key={name}>{name}</th>)}<th class="number">#</th><th>First event</th><th class="number">Length</th><th class="number">Events</th></tr></thead>
        <tbody ref={list}>
          {matches.slice(from, from + 300).map((match, j) => {
            const i = from + j;
            return (
              <tr key={i} aria-selected={i === chosen} class={i === chosen ? "on" : ""} onClick={() => choose(i)}>
                {match.partition.map((value, k) => <td key={k}>{value === null ? "NULL" : String(value)}</td>)}
                <td class="number">{match.number}</td>
                <td><button type="button" class="linklike" onClick={() => choose(i)}>{spot(match.from, integers)}</button></td>
                <td class="number">{stretch(match.from, match.to, integers)}</td>
                <td class="number">{count(match.events)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {matches.length > 300 && <p class="quiet hint">Rows {count(from + 1)} to {count(Math.min(matches.length, from + 300))}; next and previous move on.</p>}
    </div>
  );
}

/** Which condition holds for how many events, so that one sees where a pattern fails. */
function NoMatch({ wire }: { wire: Wire }) {
  return (
    <div class="empty">
      <p><b>No match.</b> How many events satisfy each condition by itself:</p>
      <table class="list">
        <tbody>
          {(wire.conditions ?? []).map((one) => (
            <tr key={one.variable}>
              <td><code>{one.variable}</code></td>
              <td class="number">{one.hits === null ? "–" : count(one.hits)}</td>
              <td class="quiet">{one.hits === 0 ? "no event at all: this condition alone rules every match out" : (one.reason ?? "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {wire.conditions?.every((one) => one.hits === null || one.hits > 0) && <p class="quiet">Each is satisfied somewhere: order, WITHIN or neighbouring events rule the matches out.</p>}
    </div>
  );
}
