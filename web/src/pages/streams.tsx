/** Streams and views: what is there, and each stream's whole history at any zoom, from the tree's aggregates. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { address, getJson, may, messageOf, refreshStreams, remove, type StreamInfo, streams, streamsProblem, views } from "../api";
import { quoted } from "../query/names";
import { NoEvents } from "../query/samples";
import { newTab } from "../query/shelf";
import { JobProgress, useJob } from "../ui/job";
import { Loading, Scroll } from "../ui/loading";
import { bytes, count, share } from "../ui/numbers";
import { Profile } from "./profile";
import { Views } from "./views";

export function StreamsPage({ rest }: { rest: string }) {
  useEffect(() => void refreshStreams(), []);
  const name = decodeURIComponent(rest);
  if (name) return <StreamPage key={name} name={name} />;
  const all = streams.value;
  return (
    <main class="page">
      <div class="pagehead"><h1>Streams</h1><span class="quiet">{all ? `${count(all.length)} streams` : ""}</span></div>
      {streamsProblem.value && <p class="banner bad" role="alert">{streamsProblem.value}</p>}
      {!all && !streamsProblem.value && <Loading />}
      {all?.length === 0 && <NoEvents />}
      {all && all.length > 0 && (
        <Scroll label="Streams">
          <table class="list">
            <thead><tr><th>Stream</th><th class="number">Events</th><th>First</th><th>Last</th><th>Columns</th></tr></thead>
            <tbody>
              {all.map((stream) => (
                <tr key={stream.name}>
                  <td><a href={`#/streams/${encodeURIComponent(stream.name)}`}>{stream.name}</a></td>
                  {stream.damage ? (
                    <td colSpan={4}><span class="badge bad">damaged</span> {stream.damage}</td>
                  ) : (
                    <>
                      <td class="number">{count(stream.count)}</td>
                      <td>{shortTime(stream.time_range?.first)}</td>
                      <td>{shortTime(stream.time_range?.last)}</td>
                      <td class="quiet columns">{stream.schema.map((column) => column.name).join(", ")}</td>
                    </>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {views.value.length > 0 && <Views />}
    </main>
  );
}

function shortTime(time: string | number | undefined): string {
  if (time === undefined) return "–";
  return typeof time === "number" ? count(time) : time.replace("T", " ").replace(/(\.\d{3})\d+/, "$1");
}

interface Index {
  attribute?: string;
  name?: string;
  [key: string]: unknown;
}

function StreamPage({ name }: { name: string }) {
  const [stream, setStream] = useState<StreamInfo | null>(null);
  const [problem, setProblem] = useState("");
  const load = () =>
    getJson<StreamInfo>(address("streams", name)).then(
      (found) => (setStream(found), setProblem("")),
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => void load(), [name]);
  const indexes = useMemo<Index[]>(() => indexList(stream?.indexes), [stream]);
  const open = () => {
    newTab(`SELECT *\nFROM ${quoted(name)}\nORDER BY ${quoted(stream?.time ?? "")} DESC\nLIMIT 1000`, name);
    location.hash = "#/query";
  };
  return (
    <main class="page">
      <div class="pagehead">
        <h1><a href="#/streams">Streams</a> / {name}</h1>
        <span class="space" />
        {may("read", name) && <button type="button" disabled={!stream} onClick={open}>Query</button>}
        {may("read", name) && <a class="button" href={`#/live/${encodeURIComponent(name)}`}>Tail</a>}
        {may("admin", name) && stream && <Drop name={name} />}
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {!stream && !problem && <Loading />}
      {stream && (
        <>
          <dl class="facts">
            <div><dt>Events</dt><dd>{count(stream.count)}</dd></div>
            <div><dt>First</dt><dd>{shortTime(stream.time_range?.first)}</dd></div>
            <div><dt>Last</dt><dd>{shortTime(stream.time_range?.last)}</dd></div>
            <div><dt>Version</dt><dd>{count(stream.version)}</dd></div>
            {factsOf(stream.stats).map(([label, value]) => <div key={label}><dt>{label}</dt><dd>{value}</dd></div>)}
          </dl>
          {stream.time_range && may("read", name) && <Profile stream={stream} />}
          <h2>Schema</h2>
          <Scroll label="Schema">
            <table class="list">
              <thead><tr><th>Column</th><th>Type</th><th>Nullable</th><th>Index</th><td /></tr></thead>
              <tbody>
                {stream.schema.map((column) => {
                  const index = indexes.find((one) => one.attribute === column.name);
                  return (
                    <tr key={column.name}>
                      <td>{column.name}{column.name === stream.time && <> <span class="badge">time</span></>}</td>
                      <td><code>{column.sql_type}</code></td>
                      <td class="quiet">{column.nullable ? "yes" : "no"}</td>
                      <td class="quiet">{index ? indexText(index) : ""}</td>
                      <td class="number">{may("admin", name) && column.name !== stream.time && <IndexButton stream={name} column={column.name} there={Boolean(index)} done={load} />}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </Scroll>
        </>
      )}
    </main>
  );
}

function indexList(found: StreamInfo["indexes"]): Index[] {
  if (Array.isArray(found)) return found;
  return Object.entries(found ?? {}).map(([attribute, value]) => ({ attribute, ...(value as object) }));
}

function indexText(index: Index): string {
  const { state, covered, lag_events: lag, bytes: size } = index;
  const parts = [state, typeof covered === "number" && `covers ${share(covered, 1)}`, typeof lag === "number" && lag > 0 && `${count(lag)} events behind`, typeof size === "number" && bytes(size)];
  return parts.filter(Boolean).join(" · ");
}

const INTERNAL = new Set(["count", "events", "name", "version", "position", "manifest_version", "manifest_commits", "log_records"]);

const WORDS: Record<string, string> = { bytes: "Size", log_bytes: "Size of the log", tail_events: "Events in the log only", late_total: "Late events", cold_bytes: "Size in the object store" };

function factsOf(stats: Record<string, unknown> | undefined): [string, string][] {
  return Object.entries(stats ?? {})
    .filter(([, value]) => typeof value === "number" || typeof value === "string")
    .filter(([name, value]) => value !== 0 && !INTERNAL.has(name))
    .map(([name, value]) => [
      WORDS[name] ?? name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase()),
      typeof value === "number" ? (name.includes("bytes") ? bytes(value) : count(value)) : String(value),
    ]);
}

function IndexButton({ stream, column, there, done }: { stream: string; column: string; there: boolean; done: () => void }) {
  const [trouble, setTrouble] = useState("");
  const { job, problem, start } = useJob(done);
  const drop = () => {
    setTrouble("");
    remove(address("streams", stream, "indexes", column)).then(done, (error: unknown) => setTrouble(messageOf(error)));
  };
  if (job) return <JobProgress job={job} what={`the index on ${column}`} />;
  return (
    <>
      {(trouble || problem) && <span class="bad" role="alert">{trouble || problem} </span>}
      {there ? <button type="button" onClick={drop}>Drop index</button> : <button type="button" onClick={() => start({ kind: "index", stream, attribute: column })}>Create index</button>}
    </>
  );
}

function Drop({ name }: { name: string }) {
  const [asked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState("");
  const drop = async () => {
    try {
      await remove(address("streams", name));
      await refreshStreams();
      location.hash = "#/streams";
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  if (!asked) return <button type="button" class="danger" onClick={() => setAsked(true)}>Drop…</button>;
  return (
    <span class="confirm">
      {problem && <span class="bad" role="alert">{problem}</span>}
      <input aria-label={`Type ${name} to drop it`} placeholder={`Type ${name}`} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
      <button type="button" class="danger" disabled={typed !== name} onClick={() => void drop()}>Drop</button>
      <button type="button" onClick={() => setAsked(false)}>Cancel</button>
    </span>
  );
}
