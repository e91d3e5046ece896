/** A job of the server: what it is, and one that a page has begun, as far as it is. */
import { useEffect, useState } from "preact/hooks";
import { address, getJson, isBusy, messageOf, postJson, remove } from "../api";
import { share } from "./numbers";
import { Sure } from "./sure";

/** Kinds that Admin begins in its list of jobs; programs and other pages begin further ones. */
export type Kind = "backup" | "check" | "compact" | "move" | "export" | "import";

export interface Job {
  job_id: string;
  kind: Kind | "index" | "delete" | "update";
  name?: string;
  streams?: string[];
  stream?: string;
  attribute?: string;
  file?: string;
  sql?: string;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  progress: number;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  result: Record<string, unknown> | null;
  error: string | null;
}

export const begin = (spec: object): Promise<Job> => postJson<Job>("v1/jobs", spec);
export const cancel = (job: Job): Promise<void> => remove(address("jobs", job.job_id));

const EVERY_MS = 400;

/** A job that is begun here and followed to its end; it goes on when the page is left. */
export function useJob(ended: () => void): { job: Job | null; problem: string; start: (spec: object) => void } {
  const [job, setJob] = useState<Job | null>(null);
  const [problem, setProblem] = useState("");
  const id = job?.job_id;
  useEffect(() => {
    if (!id) return undefined;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const look = async () => {
      try {
        const found = await getJson<Job>(address("jobs", id), stop.signal);
        setJob(found.ended_at ? null : found);
        if (found.error) setProblem(found.error);
        if (found.ended_at) return ended();
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!isBusy(error)) return setJob(null), setProblem(messageOf(error));
      }
      timer = setTimeout(() => void look(), EVERY_MS);
    };
    void look();
    return () => (stop.abort(), clearTimeout(timer));
  }, [id]);
  const start = (spec: object) => {
    setProblem("");
    begin(spec).then(setJob, (error: unknown) => setProblem(messageOf(error)));
  };
  return { job, problem, start };
}

/** How far a job is, and its end before that. */
export function JobProgress({ job, what }: { job: Job; what: string }) {
  return (
    <span class="progress" role="status">
      {job.state === "waiting" ? <span class="quiet">waiting</span> : <><progress aria-label={`Progress of ${what}`} max={1} value={job.progress} /><span class="quiet">{share(job.progress, 1)}</span></>}
      <Sure label={`Cancel ${what}`} text="Cancel" act={() => void cancel(job).catch(() => undefined)} />
    </span>
  );
}
