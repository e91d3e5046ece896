/**
 * Import: a file dropped here becomes events of a stream, all of them or none.
 *
 * The server looks at its beginning and says what it would make of it; whatever is corrected here is
 * looked at again, so that what is shown is what will be stored.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, headers, may, messageOf, Problem, type ProblemDocument, refreshStreams, ROOT, streams } from "../api";
import { quoted } from "../query/names";
import { newTab } from "../query/shelf";
import { Scroll } from "../ui/loading";
import { bytes, count, share } from "../ui/numbers";
import { AMBIGUOUS, type BadRow, columnsOf, ENCODINGS, type Ingested, type Look, lookedAt, nameOf, paramsOf, paramsOfFile, type Planned, TIME_FORMATS, timeFormatOf, TYPES, type Written, WRITTEN } from "./looking";

const LOOK_AGAIN_MS = 400;
const LOOK_AGAIN_MOST = 8 << 20;
const SAMPLES = 3;

interface Chosen {
  file: File;
  written: Written;
  body: Blob;
  first: Look;
}

export function ImportPage() {
  const [file, setFile] = useState<File | null>(null);
  const [written, setWritten] = useState(WRITTEN);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const [looking, setLooking] = useState("");
  const [problem, setProblem] = useState("");
  const [over, setOver] = useState(false);
  const choose = (file: File | undefined) => {
    if (!file) return;
    setWritten(WRITTEN);
    setChosen(null);
    setFile(file);
  };
  useEffect(() => {
    if (!file) return undefined;
    const stop = new AbortController();
    const first = async () => {
      setLooking(file.name);
      setProblem("");
      try {
        const body = lookedAt(file);
        const first = await look(body, paramsOfFile(file.name, written), stop.signal);
        await refreshStreams();
        if (!stop.signal.aborted) setChosen({ file, written, body, first });
      } catch (error) {
        if (!stop.signal.aborted) setProblem(messageOf(error));
      } finally {
        if (!stop.signal.aborted) setLooking("");
      }
    };
    const later = setTimeout(() => void first(), written === WRITTEN ? 0 : LOOK_AGAIN_MS);
    return () => {
      clearTimeout(later);
      stop.abort();
    };
  }, [file, written]);
  return (
    <main class="page">
      <div class="pagehead"><h1>Import</h1><span class="quiet">a file becomes events of a stream: all of them, or none</span></div>
      <label
        class={`drop ${over ? "over" : ""} ${chosen ? "chosen" : ""}`}
        onDragOver={(event) => (event.preventDefault(), setOver(true))}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          choose(event.dataTransfer?.files[0]);
        }}
      >
        <strong>{chosen ? chosen.file.name : looking || "Drop a file here, or choose one"}</strong>
        <span class="quiet" role="status">{looking ? "Reading its beginning…" : chosen ? factsOf(chosen) : "CSV, JSON, NDJSON, Parquet, Arrow, Excel or line protocol; packed by gzip, zstd, bzip2 or zip as well"}</span>
        <input type="file" aria-label="File" onChange={(event) => choose(event.currentTarget.files?.[0])} />
      </label>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {(problem || chosen?.first.format === "csv" || written !== WRITTEN) && <HowWritten written={written} change={(by) => setWritten({ ...written, ...by })} />}
      {chosen && !problem && <Settings key={JSON.stringify([chosen.file.name, chosen.file.size, chosen.file.lastModified, chosen.written])} chosen={chosen} />}
    </main>
  );
}

/** What the server infers of a text file, to be corrected also where it could not read it. */
function HowWritten({ written, change }: { written: Written; change: (by: Partial<Written>) => void }) {
  const field = (name: keyof Written, text: string, size: number, placeholder = "inferred", list?: string) => (
    <label><span class="quiet">{text}</span> <input size={size} list={list} aria-label={text} placeholder={placeholder} value={written[name]} onInput={(e) => change({ [name]: e.currentTarget.value })} /></label>
  );
  return (
    <section class="options" aria-label="How the file is written">
      {field("encoding", "Encoding", 12, "UTF-8", "encodings")}
      <datalist id="encodings">{ENCODINGS.map((name) => <option key={name} value={name} />)}</datalist>
      {field("delimiter", "Delimiter", 6)}
      {field("quote", "Quote", 3, '"')}
      <label><span class="quiet">Decimal</span> <select aria-label="Decimal" value={written.decimal} onChange={(e) => change({ decimal: e.currentTarget.value })}><option value="">inferred</option><option>,</option><option>.</option></select></label>
      {field("skip", "Lines to skip", 4, "0")}
      <label><span class="quiet">Header</span> <select aria-label="Header" value={written.header} onChange={(e) => change({ header: e.currentTarget.value })}><option value="">inferred</option><option value="true">yes</option><option value="false">no</option></select></label>
      {field("columns", "Names of columns", 16, "of the header")}
      {field("null", "NULL is", 6, "empty")}
      {field("sheet", "Sheet", 10, "the first")}
    </section>
  );
}

function factsOf({ file, first }: Chosen): string {
  return [first.format, first.compression, bytes(file.size)].filter(Boolean).join(" · ");
}

function Settings({ chosen: { file, written, body, first } }: { chosen: Chosen }) {
  const [name, setName] = useState(nameOf(file.name));
  const [columns, setColumns] = useState<Planned[]>(() => columnsOf(first));
  const [time, setTime] = useState(first.time ?? "");
  const [timeFormat, setTimeFormat] = useState(() => timeFormatOf(first));
  const [timeZone, setTimeZone] = useState("");
  const [ambiguous, setAmbiguous] = useState("refuse");
  const [timeOfDay, setTimeOfDay] = useState(first.time_of_day ?? "");
  const [retention, setRetention] = useState("");
  const [skip, setSkip] = useState(false);
  const known = (streams.value ?? []).find((stream) => stream.name === name);
  const asked = useMemo(() => paramsOf({ file: file.name, columns, time, timeFormat, timeZone, ambiguous, timeOfDay, written, known: known?.name ?? null }), [columns, time, timeFormat, timeZone, ambiguous, timeOfDay, written, known?.name]);
  const { seen, problem, busy } = useLook(body, first, asked);
  const { sent, refused, done, send } = useIngest(file);
  const change = (i: number, by: Partial<Planned>) => {
    const old = columns[i] as Planned;
    if (by.as !== undefined && old.as === time) setTime(by.as);
    if (by.as !== undefined && old.as === timeOfDay) setTimeOfDay(by.as);
    setColumns(columns.with(i, { ...old, ...by }));
  };
  const chooseTime = (other: string) => {
    const proposed = other === first.time;
    setTime(other);
    setTimeFormat(proposed ? timeFormatOf(first) : "auto");
    setTimeOfDay((proposed && first.time_of_day) || "");
  };
  const ingest = (dryRun: boolean) => {
    const all = new URLSearchParams(asked);
    all.set("stream", name);
    if (!known) all.set("create", "true");
    if (!known && retention.trim()) all.set("retention", retention.trim());
    if (skip) all.set("bad_rows", "skip");
    if (dryRun) all.set("dry_run", "true");
    void send(all);
  };
  const mine = known ? may("ingest", name) : may("write", name);
  const ready = sent < 0 && Boolean(name) && mine && (Boolean(known) || Boolean(time)) && Boolean(timeFormat.trim());
  return (
    <section aria-label="Settings">
      <div class="options">
        <label><span class="quiet">Stream</span> <input value={name} aria-label="Name of the stream" onInput={(e) => setName(e.currentTarget.value)} /></label>
        <span class="badge">{known ? `exists, ${count(known.count)} events: appends to it` : "new"}</span>
        {!known && (
          <label><span class="quiet">Time</span> <select aria-label="Time" value={time} onChange={(e) => chooseTime(e.currentTarget.value)}><option value="">choose…</option>{columns.filter((one) => one.keep).map((one) => <option key={one.from}>{one.as}</option>)}</select></label>
        )}
        <label><span class="quiet">read as</span> <input list="time-formats" size={20} aria-label="How times are read" title="a | b: each value is read by the first pattern that fits" value={timeFormat} onInput={(e) => setTimeFormat(e.currentTarget.value)} /></label>
        <datalist id="time-formats">{first.time_formats.map((value) => <option key={value} value={value}>as in the file</option>)}{TIME_FORMATS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}</datalist>
        <label><span class="quiet">time of day in</span> <select aria-label="Time of day" value={timeOfDay} onChange={(e) => setTimeOfDay(e.currentTarget.value)}><option value="">no other column</option>{columns.filter((one) => one.keep && one.as !== time).map((one) => <option key={one.from}>{one.as}</option>)}</select></label>
        <label><span class="quiet">time zone</span> <input list="time-zones" size={12} aria-label="Time zone" placeholder="UTC" value={timeZone} onInput={(e) => setTimeZone(e.currentTarget.value)} /></label>
        <datalist id="time-zones">{Intl.supportedValuesOf("timeZone").map((zone) => <option key={zone} value={zone} />)}</datalist>
        {timeZone.trim() && <label><span class="quiet">a time that the clocks show twice</span> <select aria-label="A time shown twice" value={ambiguous} onChange={(e) => setAmbiguous(e.currentTarget.value)}>{AMBIGUOUS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}</select></label>}
        {!known && <label><span class="quiet">retention</span> <input size={10} aria-label="Retention" placeholder="forever" title="30 days, 10 GB" value={retention} onInput={(e) => setRetention(e.currentTarget.value)} /></label>}
        <label><input type="checkbox" checked={skip} onChange={() => setSkip(!skip)} /> skip bad rows</label>
        <span class="space" />
        <button type="button" disabled={!ready} title="Read all of the file, store nothing" onClick={() => ingest(true)}>Check all</button>
        <button type="button" class="primary" disabled={!ready} onClick={() => ingest(false)}>Import</button>
      </div>
      {!mine && <p class="banner slim"><span>Your token may not {known ? "append to" : "create"} this stream: it needs the scope <code>{known ? "ingest" : "write"}</code> for its name.</span></p>}
      {!known && !time && <p class="banner slim"><span>No column looks like a time: choose one.</span></p>}
      {!timeFormat.trim() && (
        <p class="banner slim" role="status">
          <span>{first.time_formats.length > 1 ? `Several patterns read the column ${first.time}: choose the right one.` : "How are times read? auto, iso, s, ms, us, ns, or a pattern."}</span>
          {first.time_formats.map((one) => <button key={one} type="button" onClick={() => setTimeFormat(one)}><code>{one}</code></button>)}
        </p>
      )}
      {sent >= 0 && <progress aria-label="Sent" max={file.size} value={sent} />}
      {sent >= 0 && <p class="hint quiet" role="status">{sent < file.size ? `${share(sent, file.size)} sent` : "The server is reading it…"}</p>}
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {refused && (
        <div class="banner bad" role="alert">
          <strong>{refused.title}</strong>
          <p>{refused.detail}</p>
          <Errors found={refused.errors} />
          <p class="quiet">Nothing was stored.</p>
        </div>
      )}
      {done && <Done done={done} />}
      {seen.notes.length > 0 && <ul class="notes">{seen.notes.map((note) => <li key={note}>{note}</li>)}</ul>}
      {seen.rejected > 0 && (
        <div class="banner">
          <strong>{count(seen.rejected)} of the first {count(seen.looked_at)} rows cannot be read as events</strong>
          <Errors found={seen.errors} />
        </div>
      )}
      <Columns columns={columns} seen={seen} busy={busy} time={known ? known.time : time} timeOfDay={timeOfDay} known={known?.schema.map((one) => one.name) ?? null} change={change} />
    </section>
  );
}

interface ColumnsProps {
  columns: Planned[];
  seen: Look;
  busy: boolean;
  time: string;
  timeOfDay: string;
  /** The columns of a stream that exists. */
  known: string[] | null;
  change: (i: number, by: Partial<Planned>) => void;
}

function Columns({ columns, seen, busy, time, timeOfDay, known, change }: ColumnsProps) {
  const types = new Map(seen.columns.map((one) => [one.name, one.sql_type]));
  return (
    <Scroll label="Columns of the file" busy={busy}>
      <table class="list" aria-label="Columns">
        <thead><tr><th>{known ? "" : "Keep"}</th><th>In the file</th><th>Column</th><th>Type</th><th>First values</th></tr></thead>
        <tbody>
          {columns.map((column, i) => {
            const there = !known || known.includes(column.as) || column.as === timeOfDay;
            const ofTime = column.as === time || column.as === timeOfDay;
            return (
              <tr key={column.from} class={column.keep && there ? "" : "off"}>
                <td>{!known && <input type="checkbox" aria-label={`Keep ${column.from}`} disabled={ofTime} checked={column.keep} onChange={() => change(i, { keep: !column.keep })} />}</td>
                <td>{column.from}</td>
                <td><input size={14} aria-label={`Name of ${column.from}`} value={column.as} onInput={(e) => change(i, { as: e.currentTarget.value })} /> {ofTime && <span class="badge">{column.as === time ? "time" : "time of day"}</span>}{!there && <span class="badge warn">not in the stream</span>}</td>
                <td>
                  {known || ofTime ? (
                    <code>{types.get(column.as) ?? ""}</code>
                  ) : (
                    <select aria-label={`Type of ${column.from}`} value={column.type || (types.get(column.as) ?? "")} onChange={(e) => change(i, { type: e.currentTarget.value })}>
                      {[...new Set([column.inferred, ...TYPES])].map((type) => <option key={type}>{type}</option>)}
                    </select>
                  )}
                </td>
                <td class="quiet columns"><code>{column.keep && there && types.has(column.as) ? seen.rows.slice(0, SAMPLES).map((row) => textOf(row[column.as])).join(" · ") : ""}</code></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

function Done({ done }: { done: Ingested }) {
  const { stream } = done;
  if (done.dry_run) {
    return (
      <div class="banner ok" role="status">
        <strong>{count(done.rows)} rows can be stored</strong>{done.rejected ? `, ${count(done.rejected)} would be skipped` : ""}. Nothing was stored.
        <Errors found={done.errors} />
      </div>
    );
  }
  return (
    <div class="banner ok" role="status">
      <strong>{count(done.appended)} events stored</strong>{done.late ? `, ${count(done.late)} of them late` : ""}; {stream} has {count(done.count ?? 0)}.{" "}
      {done.rejected ? `${count(done.rejected)} bad rows were skipped. ` : ""}
      {may("read", stream) && <button type="button" onClick={() => (newTab(`SELECT *\nFROM ${quoted(stream)}\nLIMIT 1000`, stream), (location.hash = "#/query"))}>Query it</button>}
      <Errors found={done.errors} />
    </div>
  );
}

function Errors({ found }: { found: BadRow[] | ProblemDocument["errors"] }) {
  if (!found?.length) return null;
  return <ul>{found.map((error, i) => <li key={i}>{error.row !== undefined ? `row ${count(error.row)}: ` : ""}{error.message ?? JSON.stringify(error)}</li>)}</ul>;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value).replace(/T(?=\d\d:)/, " ");
}

async function look(body: Blob, asked: URLSearchParams, signal?: AbortSignal): Promise<Look> {
  const answer = await ask(`v1/ingest/preview?${asked}`, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body, ...(signal ? { signal } : {}) });
  return (await answer.json()) as Look;
}

/** What the server sees with these settings; the last that it could read stays meanwhile. */
function useLook(body: Blob, first: Look, asked: URLSearchParams): { seen: Look; problem: string; busy: boolean } {
  const [seen, setSeen] = useState(first);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const begun = useRef(false);
  useEffect(() => {
    if (!begun.current || body.size > LOOK_AGAIN_MOST) {
      begun.current = true;
      return undefined;
    }
    const stop = new AbortController();
    setBusy(true);
    const later = setTimeout(() => {
      look(body, asked, stop.signal)
        .then((found) => (setSeen(found), setProblem("")), (error: unknown) => stop.signal.aborted || setProblem(messageOf(error)))
        .finally(() => stop.signal.aborted || setBusy(false));
    }, LOOK_AGAIN_MS);
    return () => {
      clearTimeout(later);
      stop.abort();
    };
  }, [asked.toString()]);
  return { seen, problem, busy };
}

/** Sending the file; `sent` is below 0 while nothing is sent. */
function useIngest(file: File) {
  const [sent, setSent] = useState(-1);
  const [refused, setRefused] = useState<ProblemDocument | null>(null);
  const [done, setDone] = useState<Ingested | null>(null);
  const send = async (asked: URLSearchParams) => {
    setRefused(null);
    setDone(null);
    setSent(0);
    try {
      setDone(await upload(`v1/ingest?${asked}`, file, setSent));
    } catch (error) {
      setRefused(error instanceof Problem ? error.document : { code: "error", title: "The import failed", status: 0, detail: messageOf(error) });
    } finally {
      setSent(-1);
      void refreshStreams();
    }
  };
  return { sent, refused, done, send };
}

/** XMLHttpRequest: fetch does not tell how much of a body has been sent. */
function upload(path: string, file: File, sent: (bytes: number) => void): Promise<Ingested> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", ROOT + path);
    for (const [header, value] of Object.entries(headers({ "Content-Type": "application/octet-stream" }))) request.setRequestHeader(header, value);
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onload = () => {
      let answer: unknown;
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        answer = { code: "error", title: "The import failed", status: request.status, detail: request.responseText.slice(0, 300) };
      }
      if (request.status < 300) resolve(answer as Ingested);
      else reject(new Problem(answer as ProblemDocument));
    };
    request.onerror = () => reject(new Error("The connection was lost."));
    request.send(file);
  });
}
