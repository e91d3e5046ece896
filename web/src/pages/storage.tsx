/** What streams take on the disk, and how long they keep it. */
import { useState } from "preact/hooks";
import { may, messageOf, postJson, refreshStreams } from "../api";
import { quoted } from "../query/names";
import { Instead, Scroll } from "../ui/loading";
import { bytes, count } from "../ui/numbers";
import { useRows } from "../ui/rows";
import { Sure } from "../ui/sure";

interface KeptRow {
  stream: string;
  events: number | null;
  bytes: number | null;
  segments: number | null;
  codec: string | null;
  retention: string | null;
  damage: string | null;
}

const KEPT = "SELECT stream, events, bytes, segments, codec, retention, damage FROM chronicle.streams ORDER BY bytes DESC";

export function Storage() {
  const [round, setRound] = useState(0);
  const { rows, problem } = useRows<KeptRow>(KEPT, round);
  const [changing, setChanging] = useState("");
  const done = () => {
    setChanging("");
    setRound(round + 1);
    void refreshStreams();
  };
  return (
    <section aria-label="Storage">
      <div class="options"><h2>Storage</h2><span class="quiet">size and retention of each stream</span></div>
      <Instead of={rows} problem={problem} none="No streams yet." />
      {rows && rows.length > 0 && (
        <Scroll label="Storage, all columns">
          <table class="list" aria-label="Storage">
            <thead><tr><th>Stream</th><th class="number">Events</th><th class="number">Size</th><th class="number">Segments</th><th>Codec</th><th>Retention</th><td /></tr></thead>
            <tbody>
              {rows.map((one) => (
                <tr key={one.stream}>
                  <td><a href={`#/streams/${encodeURIComponent(one.stream)}`}>{one.stream}</a></td>
                  <td class="number">{one.events === null ? "" : count(one.events)}</td>
                  <td class="number">{one.events && !one.segments ? <span class="quiet">in the log</span> : one.bytes === null ? "" : bytes(one.bytes)}</td>
                  <td class="number">{one.segments === null ? "" : count(one.segments)}</td>
                  <td>{one.codec}</td>
                  <td>{changing === one.stream ? <Retention row={one} done={done} /> : (one.retention ?? "forever")}</td>
                  <td class="number">
                    {one.damage && <span class="bad">{one.damage}</span>}
                    {!one.damage && may("admin", one.stream) && (
                      <button type="button" aria-label={changing === one.stream ? `Leave ${one.stream} as it is` : `Change how long ${one.stream} keeps events`} onClick={() => setChanging(changing === one.stream ? "" : one.stream)}>
                        {changing === one.stream ? "Cancel" : "Change"}
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

/** How long a stream keeps events: what it lets go is gone at once, so it is asked for twice. */
function Retention({ row, done }: { row: KeptRow; done: () => void }) {
  const [typed, setTyped] = useState(row.retention ?? "");
  const [problem, setProblem] = useState("");
  const set = async () => {
    const value = typed.trim() ? `'${typed.trim().replaceAll("'", "''")}'` : "NULL";
    try {
      await postJson("v1/query", { sql: `ALTER STREAM ${quoted(row.stream)} SET (retention = ${value})` });
      done();
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <span class="confirm">
      <input size={12} aria-label={`${row.stream} keeps`} placeholder="forever" title="30 days or 10 GB; a plain number where the time is an integer" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
      <Sure label={`Set how long ${row.stream} keeps events`} text="Set" act={() => void set()} />
      {problem && <span class="bad wrap" role="alert">{problem}</span>}
    </span>
  );
}
