/** What runs on the server now, and what has ended. */
import { useState } from "preact/hooks";
import { address, remove } from "../api";
import { Instead, Scroll } from "../ui/loading";
import { count, seconds, short } from "../ui/numbers";
import { useRepeated } from "../ui/repeated";
import { useRows } from "../ui/rows";

interface RunningQuery {
  id: string;
  kind: string;
  text: string;
  running_ms: number;
  token: string | null;
  events_read: number | null;
  events_expected: number | null;
}

export function Running() {
  const { found, problem, again } = useRepeated<{ queries: RunningQuery[] }>("v1/queries");
  const end = async (query: RunningQuery) => {
    await remove(address("queries", query.id)).catch(() => undefined); // it may have ended meanwhile
    again();
  };
  return (
    <section aria-label="Running queries">
      <div class="options"><h2>Running queries</h2></div>
      <Instead of={found?.queries} problem={problem} none="No query is running." />
      {found && found.queries.length > 0 && (
        <Scroll label="Running queries, all columns">
          <table class="list">
            <thead><tr><th>Query</th><th>Kind</th><th>Token</th><th class="number">Running for</th><th>Events read</th><td /></tr></thead>
            <tbody>
              {found.queries.map((query) => (
                <tr key={query.id}>
                  <td class="columns"><code title={query.text}>{oneLine(query.text)}</code></td>
                  <td>{query.kind}</td>
                  <td class="quiet">{query.token ?? ""}</td>
                  <td class="number">{seconds(query.running_ms / 1000)}</td>
                  <td><Progress query={query} /></td>
                  <td class="number"><button type="button" class="danger" onClick={() => void end(query)}>Cancel</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

/** Events read, of those that it will read at most, as far as it knows. */
function Progress({ query }: { query: RunningQuery }) {
  const { events_read: read, events_expected: expected } = query;
  if (read === null || !expected) return <span class="quiet">–</span>;
  return (
    <span class="progress">
      <progress aria-label={`Events read by ${query.id}`} max={expected} value={read} />
      <span class="quiet">{short(read)} of {short(expected)}</span>
    </span>
  );
}

interface EndedQuery {
  id: string;
  kind: string;
  text: string | null;
  token: string | null;
  started: string;
  duration_ms: number;
  rows: number | null;
  outcome: string;
  error: string | null;
}

/** How a statement that may be run again begins: reads of other routes have a text for people. */
const SQL = /^\s*(\(|select|with|from|values|explain|show|describe)\b/i;
const oneLine = (text: string | null) => (text ?? "").replace(/\s+/g, " ");

const ENDED = "SELECT id, kind, text, token, started, duration_ms, rows, outcome, error FROM chronicle.query_log WHERE text NOT LIKE '%chronicle.query_log%' ORDER BY started DESC LIMIT 50";

/** What ran lately, the newest first; an example to run again is a click away. */
export function Ended() {
  const [round, setRound] = useState(0);
  const { rows, problem } = useRows<EndedQuery>(ENDED, round);
  return (
    <section aria-label="Ended queries">
      <div class="options"><h2>Ended queries</h2><span class="space" /><button type="button" onClick={() => setRound(round + 1)}>Refresh</button></div>
      <Instead of={rows} problem={problem} none="None since the server started." />
      {rows && rows.length > 0 && (
        <Scroll label="Ended queries, newest first" tall>
          <table class="list">
            <thead><tr><th>Query</th><th>Kind</th><th>Started</th><th class="number">Duration</th><th class="number">Rows</th><th>Outcome</th></tr></thead>
            <tbody>
              {rows.map((query) => (
                <tr key={query.id}>
                  <td class="columns">{query.kind === "query" && SQL.test(query.text ?? "") ? <a href={`#q=${encodeURIComponent(query.text ?? "")}`} title={query.text ?? ""}><code>{oneLine(query.text)}</code></a> : oneLine(query.text)}</td>
                  <td>{query.kind}</td>
                  <td>{query.started.slice(0, 19).replace("T", " ")}</td>
                  <td class="number">{seconds(query.duration_ms / 1000)}</td>
                  <td class="number">{query.rows === null ? "" : count(query.rows)}</td>
                  <td><span class={`badge ${query.outcome === "ok" ? "good" : query.error ? "bad" : "warn"}`} title={query.error ?? ""}>{query.outcome}</span></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}
