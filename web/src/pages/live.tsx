/** Live: the tail of a stream, live queries with their results, and what runs now. */
import { useEffect, useRef, useState } from "preact/hooks";
import { address, may, messageOf, refreshStreams, request, streams } from "../api";
import { count } from "../ui/numbers";
import { follow } from "../ui/feed";
import { Instead, Scroll } from "../ui/loading";
import { useRepeated } from "../ui/repeated";
import { quoted } from "../query/names";
import { cellText } from "../ui/values";
import { Alerts } from "./alerts";
import { Ended, Running } from "./running";

const KEPT = 500;

export function LivePage({ rest }: { rest: string }) {
  useEffect(() => void refreshStreams(), []);
  return (
    <main class="page">
      <div class="pagehead"><h1>Live</h1></div>
      {may("read") && <Tail first={decodeURIComponent(rest)} />}
      {may("read") && <LiveQueries />}
      <Running />
      {may("read") && <Ended />}
    </main>
  );
}

type Row = Record<string, unknown>;

/** JSON in which integers beyond 2^53 keep their digits: the server writes them as text. */
function rowOf(data: string): Row {
  return JSON.parse(data) as Row;
}

function Tail({ first }: { first: string }) {
  const [name, setName] = useState(first);
  const [where, setWhere] = useState("");
  const [on, setOn] = useState(Boolean(first));
  const [rows, setRows] = useState<{ id: string; row: Row }[]>([]);
  const [rate, setRate] = useState(0);
  const [late, setLate] = useState(0);
  const [problem, setProblem] = useState("");
  const seen = useRef(0);
  useEffect(() => {
    setName(first);
    setOn(Boolean(first));
    setRows([]);
    setProblem("");
  }, [first]);
  useEffect(() => {
    if (!on || !name) return undefined;
    const stop = new AbortController();
    const waiting: { id: string; row: Row }[] = [];
    const asked = new URLSearchParams({ after: "now", int64_as_string: "true" });
    if (where.trim()) asked.set("where", where);
    const timer = setInterval(() => {
      setRate(seen.current);
      seen.current = 0;
      const fresh = waiting.splice(0).reverse();
      if (fresh.length) setRows((old) => [...fresh, ...old].slice(0, KEPT));
    }, 1000);
    void (async () => {
      try {
        for await (const told of follow(`${address("streams", name, "tail")}?${asked}`, stop.signal)) {
          if (told.event === "row") {
            seen.current += 1;
            waiting.push({ id: told.id, row: rowOf(told.data) });
            if (waiting.length > KEPT) waiting.shift();
          } else if (told.event === "mark") setLate((JSON.parse(told.data) as { late?: number }).late ?? 0);
          else if (told.event === "error") setProblem((JSON.parse(told.data) as { detail: string }).detail);
        }
      } catch (error) {
        if (!stop.signal.aborted) {
          setProblem(messageOf(error));
          setOn(false);
        }
      }
    })();
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [on, name]);
  const start = () => {
    setProblem("");
    setRows([]);
    setOn(true);
  };
  const numeric = streams.value?.find((one) => one.name === name)?.schema.find((column) => /double|real|int|decimal/i.test(column.sql_type));
  const example = numeric ? `WHERE ${quoted(numeric.name)} > 10` : "WHERE …";
  const heads = [...new Set(rows.slice(0, 50).flatMap(({ row }) => Object.keys(row)))];
  return (
    <section aria-label="Tail">
      <div class="options">
        <h2>Tail</h2>
        <label><span class="quiet">Stream</span> <select value={name} onChange={(e) => (setName(e.currentTarget.value), setOn(false), setRows([]), history.replaceState(null, "", `#/live/${encodeURIComponent(e.currentTarget.value)}`))}>
          <option value="">choose…</option>
          {(streams.value ?? []).filter((one) => !one.damage).map((one) => <option key={one.name}>{one.name}</option>)}
        </select></label>
        <input class="wide" placeholder={example} aria-label="Condition" value={where} onInput={(e) => setWhere(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && name && start()} />
        {on ? <button type="button" onClick={() => setOn(false)}>Pause</button> : <button type="button" class="primary" disabled={!name} onClick={start}>Follow</button>}
        <span class="space" />
        {on && <span class="quiet" role="status">{count(rate)} events/s{late ? ` · ${count(late)} late` : ""}</span>}
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {rows.length > 0 ? (
        <Scroll label="Events, newest first" tall>
          <table class="list mono">
            <thead><tr>{heads.map((head) => <th key={head}>{head}</th>)}</tr></thead>
            <tbody>{rows.map(({ id, row }) => <tr key={id}>{heads.map((head) => <td key={head} class={typeof row[head] === "number" ? "number" : ""}>{row[head] === null ? <i class="quiet">NULL</i> : cellText(row[head])}</td>)}</tr>)}</tbody>
          </table>
        </Scroll>
      ) : (
        <p class="empty" role="status">{on ? `Waiting for new events of ${name}…` : "Choose a stream to see its new events as they are committed."}</p>
      )}
    </section>
  );
}

export interface LiveQuery {
  name: string;
  state: string;
  sql: string;
  sink: string;
  rows?: number | null;
  retractions?: number | null;
  watermark?: string | null;
  lag_events?: number | null;
  lag_ms?: number | null;
  error?: string | null;
}

function LiveQueries() {
  const { found, problem, again } = useRepeated<{ live: LiveQuery[] }>("v1/live");
  const [trouble, setTrouble] = useState("");
  const act = async (name: string, what: "pause" | "resume") => {
    try {
      await request(address("live", name, what), { method: "POST" });
      setTrouble("");
    } catch (error) {
      setTrouble(messageOf(error));
    }
    again();
  };
  const known = new Set((streams.value ?? []).map((one) => one.name));
  const stopped = (state: string) => state === "paused" || state === "failed";
  const tone = (state: string) => (state === "running" ? "good" : state === "failed" ? "bad" : "warn");
  return (
    <>
      <section aria-label="Live queries">
        <div class="options"><h2>Live queries</h2></div>
        <Instead of={found?.live} problem={trouble || problem} none={<>No live queries. <code>CREATE LIVE QUERY name AS SELECT …</code> creates one.</>} />
        {found && found.live.length > 0 && (
          <Scroll label="Live queries, all columns">
            <table class="list">
              <thead><tr><th>Name</th><th>State</th><th class="number">Rows</th><th>Complete up to</th><th class="number">Behind</th><th>Query</th><td /></tr></thead>
              <tbody>
                {found.live.map((live) => (
                  <tr key={live.name}>
                    <td>{known.has(live.sink) ? <a href={`#/streams/${encodeURIComponent(live.sink)}`}>{live.name}</a> : live.name}</td>
                    <td><span class={`badge ${tone(live.state)}`}>{live.state}</span>{live.error && <span class="bad"> {live.error}</span>}</td>
                    <td class="number">{typeof live.rows === "number" ? count(live.rows) : ""}</td>
                    <td>{live.watermark ? String(live.watermark).replace("T", " ") : "–"}</td>
                    <td class="number">{count(live.lag_events ?? 0)} events</td>
                    <td class="columns"><code title={live.sql}>{live.sql.replace(/\s+/g, " ")}</code></td>
                    <td class="number">{may("admin", live.name) && <button type="button" onClick={() => void act(live.name, stopped(live.state) ? "resume" : "pause")}>{stopped(live.state) ? "Resume" : "Pause"}</button>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </section>
      {found && found.live.length > 0 && <Alerts live={found.live} />}
    </>
  );
}
