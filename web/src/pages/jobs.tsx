/** Jobs: work on the store that goes on when nobody looks, and how far it is. */
import { useEffect, useState } from "preact/hooks";
import { everywhere, may, messageOf, refreshStreams, streams } from "../api";
import { begin, cancel, type Job, type Kind } from "../ui/job";
import { bytes, count, seconds, share } from "../ui/numbers";
import { Sure } from "../ui/sure";
import { useRepeated } from "../ui/repeated";

const WHAT: Record<Kind, string> = {
  backup: "a copy of the store, below CHRONICLE_BACKUP_DIRECTORY",
  check: "every block is read and its checksum compared; nothing is changed",
  compact: "late runs and small segments are written anew, in order",
  calibrate: "costs of windows and patterns are measured on this machine, for the planner",
};
const KINDS = Object.keys(WHAT) as Kind[];
const TONES: Record<Job["state"], string> = { waiting: "warn", running: "warn", done: "good", failed: "bad", cancelled: "" };

export function Jobs() {
  const { found, problem, again } = useRepeated<{ jobs: Job[] }>("v1/jobs");
  const [trouble, setTrouble] = useState("");
  const act = async (what: () => Promise<unknown>) => {
    try {
      await what();
      setTrouble("");
    } catch (error) {
      setTrouble(messageOf(error));
    }
    again();
  };
  const jobs = found?.jobs.toReversed() ?? [];
  return (
    <section aria-label="Jobs">
      <div class="options"><h2>Jobs</h2><span class="quiet">one after the other, while the server serves</span></div>
      {(trouble || problem) && <p class="banner bad" role="alert">{trouble || problem}</p>}
      {found && !jobs.length && <p class="empty">None.</p>}
      {jobs.length > 0 && (
        <div class="scroll tall" tabIndex={0} role="region" aria-label="Jobs, newest first">
          <table class="list" aria-label="Jobs">
            <thead><tr><th>Job</th><th>State</th><th>Done</th><th>Began</th><th class="number">Took</th><th>Result</th><th /></tr></thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.job_id}>
                  <td>{job.kind} <span class="quiet">{job.name ?? job.streams?.join(", ") ?? [job.stream, job.attribute].filter(Boolean).join(" ")}</span></td>
                  <td><span class={`badge ${TONES[job.state]}`}>{job.state}</span></td>
                  <td>{job.state === "running" && <span class="progress"><progress aria-label={`Progress of the ${job.kind}`} max={1} value={job.progress} /><span class="quiet">{share(job.progress, 1)}</span></span>}</td>
                  <td>{(job.started_at ?? job.created_at).slice(0, 19).replace("T", " ")}</td>
                  <td class="number">{tookOf(job)}</td>
                  <td class="wrap">{job.error ? <span class="bad">{job.error}</span> : resultOf(job)}</td>
                  <td class="number">{(job.state === "waiting" || job.state === "running") && <Sure label={`Cancel the ${job.kind}`} text="Cancel" act={() => void act(() => cancel(job))} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <NewJob start={(spec) => void act(() => begin(spec))} />
    </section>
  );
}

function NewJob({ start }: { start: (spec: object) => void }) {
  const all = everywhere();
  const [kind, setKind] = useState<Kind>(all ? "backup" : "compact");
  const [name, setName] = useState("");
  const [stream, setStream] = useState("");
  useEffect(() => void refreshStreams(), []);
  const mine = (streams.value ?? []).filter((one) => !one.damage && may("operate", one.name));
  const submit = (event: Event) => {
    event.preventDefault();
    start({ kind, ...(kind === "backup" && name.trim() ? { name: name.trim() } : {}), ...(kind === "compact" && stream ? { streams: [stream] } : {}) });
    setName("");
  };
  return (
    <form class="options" aria-label="New job" onSubmit={submit}>
      <label><span class="quiet">Job</span> <select aria-label="Kind of job" value={kind} onChange={(e) => setKind(e.currentTarget.value as Kind)}>{KINDS.filter((one) => all || one === "compact").map((one) => <option key={one}>{one}</option>)}</select></label>
      {kind === "backup" && <label><span class="quiet">Name</span> <input aria-label="Name of the backup" value={name} placeholder="the time" onInput={(e) => setName(e.currentTarget.value)} /></label>}
      {kind === "compact" && <label><span class="quiet">Stream</span> <select aria-label="Stream to compact" value={stream} onChange={(e) => setStream(e.currentTarget.value)}><option value="">{all ? "all" : "choose…"}</option>{mine.map((one) => <option key={one.name}>{one.name}</option>)}</select></label>}
      <button type="submit" class="primary" disabled={!all && !stream}>Begin</button>
      <span class="quiet">{WHAT[kind]}</span>
    </form>
  );
}

function tookOf(job: Job): string {
  if (!job.started_at) return "";
  const until = job.ended_at ? Date.parse(job.ended_at) : Date.now();
  return seconds(Math.max(0, until - Date.parse(job.started_at)) / 1000);
}

/** What a job has come to, in a line. */
function resultOf({ kind, result }: Job): string {
  if (!result) return "";
  const number = (name: string) => count(Number(result[name] ?? 0));
  if (kind === "backup") return `stored as ${String(result.name)}`;
  if (kind === "compact") return `${count((result.streams as string[]).length)} streams`;
  if (kind === "calibrate") return "measured";
  if (kind === "index") return `${number("entries")} entries, ${bytes(Number(result.bytes ?? 0))}`;
  if (kind === "delete" || kind === "update") return `${number(`${kind}d`)} events`;
  const problems = result.problems as string[];
  if (problems.length) return problems.join("; ");
  return `sound: ${number("events")} events in ${number("blocks")} blocks of ${number("streams")} streams`;
}
