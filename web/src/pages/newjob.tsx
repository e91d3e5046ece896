/** The form that begins a job: which kind, and what that kind is asked for. */
import { useEffect, useState } from "preact/hooks";
import { everywhere, may, refreshStreams, type Scope, streams } from "../api";
import type { Kind } from "../ui/job";
import { type Asked, NOTHING, specOf } from "./jobspec";

const WHAT: Record<Kind, string> = {
  backup: "a copy of the store, below CHRONICLE_BACKUP_DIRECTORY",
  check: "every block is read and its checksum compared; nothing is changed",
  compact: "late events and small segments are rewritten in order",
  move: "sealed segments go to CHRONICLE_OBJECTS; queries find them there",
  export: "all events, or the rows of a query, into a new file in CHRONICLE_EXCHANGE_DIRECTORY; its suffix says the format",
  import: "a file in CHRONICLE_EXCHANGE_DIRECTORY into a stream, in one commit or not at all",
};
/** Kinds for who does not reach every stream, and what they take on the stream. */
const OF_STREAMS: Partial<Record<Kind, Scope>> = { compact: "operate", move: "operate", export: "read", import: "ingest" };
const KINDS = Object.keys(WHAT) as Kind[];

export function NewJob({ start }: { start: (spec: object) => void }) {
  const all = everywhere();
  const kinds = KINDS.filter((kind) => {
    const scope = OF_STREAMS[kind];
    return scope ? may(scope) : all;
  });
  const [kind, setKind] = useState<Kind>(kinds[0] ?? "compact");
  const [asked, setAsked] = useState(NOTHING);
  const [create, setCreate] = useState(false);
  useEffect(() => void refreshStreams(), []);
  const mine = (streams.value ?? []).filter((one) => !one.damage && may(OF_STREAMS[kind] ?? "operate", one.name));
  const spec = specOf(kind, asked, create, all);
  const submit = (event: Event) => {
    event.preventDefault();
    if (!spec) return;
    start(spec);
    setAsked({ ...NOTHING, stream: asked.stream });
  };
  const text = (field: keyof Asked, label: string, title: string, placeholder: string) => (
    <label class={field === "sql" ? "long" : ""}><span class="quiet">{title}</span> <input aria-label={label} value={asked[field]} placeholder={placeholder} onInput={(e) => setAsked({ ...asked, [field]: e.currentTarget.value })} /></label>
  );
  const choice = (label: string, without: string) => (
    <label>
      <span class="quiet">Stream</span>{" "}
      <select aria-label={label} value={asked.stream} onChange={(e) => setAsked({ ...asked, stream: e.currentTarget.value })}>
        <option value="">{without}</option>
        {mine.map((one) => <option key={one.name}>{one.name}</option>)}
      </select>
    </label>
  );
  const choose = (to: Kind) => (setKind(to), setAsked(NOTHING), setCreate(false));
  return (
    <form class="options" aria-label="New job" onSubmit={submit}>
      <label><span class="quiet">Job</span> <select aria-label="Kind of job" value={kind} onChange={(e) => choose(e.currentTarget.value as Kind)}>{kinds.map((one) => <option key={one}>{one}</option>)}</select></label>
      {kind === "backup" && text("name", "Name of the backup", "Name", "date and time")}
      {kind === "compact" && choice("Stream to compact", all ? "all" : "choose…")}
      {kind === "move" && choice("Stream to move", all ? "all" : "choose…")}
      {kind === "move" && text("older", "Age of what moves", "Older than", "90 days; empty for all")}
      {kind === "export" && choice("Stream to export", all ? "a query" : "choose…")}
      {kind === "export" && all && !asked.stream && text("sql", "Query to export", "Query", "SELECT …")}
      {kind === "export" && text("file", "File to write", "File", "flights.parquet")}
      {kind === "import" && text("file", "File to read", "File", "pumps.csv.gz")}
      {kind === "import" && may("write") && <label><input type="checkbox" checked={create} onChange={() => (setCreate(!create), setAsked({ ...asked, stream: "" }))} /> a new stream</label>}
      {kind === "import" && (create ? text("stream", "Name of the new stream", "Stream", "pumps") : choice("Stream to import into", "choose…"))}
      {kind === "import" && create && text("time", "Time column of the new stream", "Time column", "at")}
      <button type="submit" class="primary" disabled={!spec}>Start job</button>
      <span class="quiet">{WHAT[kind]}</span>
    </form>
  );
}
