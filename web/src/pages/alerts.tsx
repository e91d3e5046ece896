/**
 * Results and retractions of all live queries, the newest first.
 *
 * A live query is asked for its rows when its figures say that there are more: nothing is held open,
 * and of what comes faster than anybody reads only the newest is asked for.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { address, ask, getJson, Problem } from "../api";
import { Instead, Scroll } from "../ui/loading";
import { cellText } from "../ui/values";
import type { LiveQuery } from "./live";

const KEPT = 200;
const AT_ONCE = 50;

interface Alert {
  live: string;
  seq: number;
  time: string;
  /** Whether it retracts an earlier result. */
  back: boolean;
  text: string;
}

interface Seen {
  figures: string;
  seq: number;
}

export function Alerts({ live }: { live: LiveQuery[] }) {
  const [alerts, setAlerts] = useState<Alert[] | null>(null);
  const [only, setOnly] = useState("");
  const [on, setOn] = useState(true);
  const seen = useRef(new Map<string, Seen>());
  const asking = useRef(false);
  useEffect(() => {
    if (!on || asking.current) return;
    asking.current = true;
    void news(live, seen.current)
      .then((found) => {
        const fresh = new Set(found.map(keyOf));
        setAlerts((old) => [...found, ...(old ?? []).filter((one) => !fresh.has(keyOf(one)))].slice(0, KEPT));
      })
      .finally(() => (asking.current = false));
  }, [live, on]);
  const shown = only ? alerts?.filter((one) => one.live === only) : alerts;
  return (
    <section aria-label="Alerts">
      <div class="options">
        <h2>Alerts</h2>
        <span class="quiet">results of live queries; a late event retracts earlier ones</span>
        <select aria-label="Live query" value={only} onChange={(e) => setOnly(e.currentTarget.value)}>
          <option value="">all live queries</option>
          {live.map((one) => <option key={one.name}>{one.name}</option>)}
        </select>
        <span class="space" />
        <button type="button" onClick={() => setOn(!on)}>{on ? "Pause" : "Resume"}</button>
      </div>
      <Instead of={shown} problem="" none="No results yet." />
      {shown && shown.length > 0 && (
        <Scroll label="Alerts, newest first" tall>
          <table class="list">
            <thead><tr><th>Time</th><th>Result</th><th>Live query</th><th>Kind</th></tr></thead>
            <tbody>
              {shown.map((one) => (
                <tr key={keyOf(one)}>
                  <td>{one.time}</td>
                  <td class="wrap"><code>{one.text}</code></td>
                  <td>{one.live}</td>
                  <td><span class={`badge ${one.back ? "warn" : "good"}`}>{one.back ? "retracted" : "result"}</span></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

const keyOf = (one: Alert) => `${one.live}\n${one.seq}`;

/** The rows of live queries since they were asked last, the newest first. */
async function news(live: LiveQuery[], seen: Map<string, Seen>): Promise<Alert[]> {
  const none = (name: string) => (error: unknown) => {
    if (error instanceof Problem && error.document.status === 410) seen.delete(name); // it was made anew
    return [];
  };
  const found = await Promise.all(live.map((one) => newsOf(one, seen).catch(none(one.name))));
  return found.flat().sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : b.seq - a.seq));
}

async function newsOf(live: LiveQuery, seen: Map<string, Seen>): Promise<Alert[]> {
  const figures = `${live.rows} ${live.retractions}`;
  const before = seen.get(live.name);
  if (before?.figures === figures) return [];
  const least = (await newest(live.sink)) - AT_ONCE;
  const after = Math.max(0, before?.seq ?? 0, least);
  const asked = new URLSearchParams({ after: String(after), follow: "false", format: "ndjson", int64_as_string: "true" });
  const text = await (await ask(`${address("live", live.name, "rows")}?${asked}`)).text();
  const alerts = text.split("\n").filter(Boolean).map((line) => alertOf(live.name, JSON.parse(line) as Record<string, unknown>));
  seen.set(live.name, { figures, seq: alerts.at(-1)?.seq ?? after });
  return alerts;
}

/** The last `_seq` of a sink, from the tree; 0 where results pass by and no stream keeps them. */
async function newest(sink: string): Promise<number> {
  const path = `${address("streams", sink, "aggregate")}?attribute=_seq&functions=max`;
  const found = await getJson<{ aggregates: { _seq: { max: number | null } } }>(path).catch(() => null);
  return Number(found?.aggregates._seq.max ?? 0);
}

function alertOf(live: string, row: Record<string, unknown>): Alert {
  const values = Object.entries(row).filter(([name]) => !name.startsWith("_"));
  return {
    live,
    seq: Number(row._seq),
    time: String(row._time).replace("T", " ").replace(/(\.\d{3})\d+/, "$1"),
    back: Number(row._diff ?? 1) < 0,
    text: values.map(([name, value]) => `${name} ${value === null ? "NULL" : cellText(value).replace(/^(\d{4}-\d\d-\d\d)T(?=\d\d:)/, "$1 ")}`).join(" · "),
  };
}
