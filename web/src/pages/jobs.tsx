/** Jobs: work on the store that goes on when nobody looks, and how far it is. */
import { useState } from "preact/hooks";
import { messageOf } from "../api";
import { begin, cancel, type Job } from "../ui/job";
import { Instead, Scroll } from "../ui/loading";
import { bytes, count, seconds, share } from "../ui/numbers";
import { Sure } from "../ui/sure";
import { useRepeated } from "../ui/repeated";
import { NewJob } from "./newjob";

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
      <div class="options"><h2>Jobs</h2><span class="quiet">maintenance in the background, one at a time</span></div>
      <Instead of={found && jobs} problem={trouble || problem} none="No jobs yet." />
      {jobs.length > 0 && (
        <Scroll label="Jobs, newest first" tall>
          <table class="list" aria-label="Jobs">
            <thead><tr><th>Job</th><th>State</th><th>Progress</th><th>Started</th><th class="number">Duration</th><th>Result</th><td /></tr></thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.job_id}>
                  <td class="columns" title={ofWhat(job)}>{job.kind} <span class="quiet">{ofWhat(job)}</span></td>
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
        </Scroll>
      )}
      <NewJob start={(spec) => void act(() => begin(spec))} />
    </section>
  );
}

/** What it is about. */
function ofWhat({ name, streams, stream, attribute, file, sql }: Job): string {
  return name ?? streams?.join(", ") ?? [stream ?? sql, attribute, file].filter(Boolean).join(" · ");
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
  const size = bytes(Number(result.bytes ?? 0));
  switch (kind) {
    case "backup":
      return `stored as ${String(result.name)}`;
    case "compact":
      return `${count((result.streams as string[]).length)} streams`;
    case "move":
      return movedOf(result.streams as Record<string, { segments: number; bytes: number }>);
    case "index":
      return `${number("entries")} entries, ${size}`;
    case "delete":
    case "update":
      return `${number(`${kind}d`)} events`;
    case "export":
      return `${number("rows")} rows, ${size}, in ${String(result.file)}`;
    case "import":
      return `${number("appended")} events stored${result.rejected ? `, ${number("rejected")} rows refused` : ""}`;
    case "check": {
      const problems = result.problems as string[];
      if (problems.length) return problems.join("; ");
      return `sound: ${number("events")} events in ${number("blocks")} blocks of ${number("streams")} streams`;
    }
    default: // of a newer server
      return JSON.stringify(result);
  }
}

function movedOf(streams: Record<string, { segments: number; bytes: number }>): string {
  const moved = Object.values(streams);
  const sum = (field: "segments" | "bytes") => moved.reduce((all, one) => all + one[field], 0);
  return sum("segments") ? `${count(sum("segments"))} segments moved, ${bytes(sum("bytes"))}` : "nothing to move";
}
