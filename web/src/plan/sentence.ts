/** A plan in one sentence, for people who do not read plans. */
import { count, seconds, share, short } from "../ui/numbers";
import type { Operator, Plan } from "./view";

export type { Operator };

/** What has been read: a region of another kind was skipped, or answered from stored aggregates. */
const READ = new Set(["replayed", "read", "looked_up"]);

function all(step: Operator): Operator[] {
  return [step, ...(step.inputs ?? []).flatMap(all)];
}

const many = (events: number) => short(events).replace(/([GMk])$/, " $1");

/** `ran`: seconds that the query itself took, where the plan has not measured it. */
export function sentenceOf(plan: Pick<Plan, "plan" | "total_ms">, ran: number | undefined): string {
  const steps = all(plan.plan);
  const took = plan.total_ms === undefined ? ran : plan.total_ms / 1000;
  const mapped = steps.filter((step) => step.regions?.found.length);
  const read = mapped.map(readBy).reduce((sum, one) => sum + one, 0);
  const total = mapped.flatMap((step) => step.regions?.found ?? []).reduce((sum, region) => sum + region[3], 0);
  const end = took === undefined ? "" : `, ${seconds(took)}`;
  if (!total) {
    const events = steps.reduce((sum, step) => sum + (step.figures?.events_read ?? 0), 0);
    return `Read ${events ? `${count(events)} events` : "no stored events"}${end}.`;
  }
  const how = howOf(steps);
  const bound = mapped.some((step) => intervalsOf(step) && step.figures?.events_replayed === undefined) ? "at most " : "";
  const part = !read ? `none of ${many(total)}` : read >= total ? `all ${many(total)}` : `${bound}${share(read, total)} of ${many(total)}`;
  return `Read ${part} events${how && `: ${how}`}${end}.`;
}

/** Events that an operator has read of what its regions cover. */
function readBy({ figures, regions }: Operator): number {
  const found = regions?.found ?? [];
  const inRegions = found.reduce((sum, region) => sum + (READ.has(region[2]) ? region[3] : 0), 0);
  if (figures?.events_replayed !== undefined) return figures.events_replayed;
  if (found.some((region) => region[2] === "aggregated")) return inRegions + (figures?.events_read ?? 0);
  return inRegions;
}

/** How many stretches of a stream are replayed; 0 where all of it is. */
function intervalsOf({ figures, replay }: Operator): number {
  return figures?.intervals ?? Number(/\b(\d+) intervals?\b/.exec(String(replay ?? ""))?.[1] ?? 0);
}

function howOf(steps: Operator[]): string {
  const columns = steps.flatMap((step) => [step.indexes, step.index].flat()).flatMap((term) => (term ? columnIn(String(term)) : []));
  const used = [...new Set(columns)];
  const indexes = used.length ? `the ${used.length > 1 ? "indexes" : "index"} on ${used.join(" and ")}` : "";
  const intervals = steps.reduce((sum, step) => sum + intervalsOf(step), 0);
  if (intervals) return `${count(intervals)} ${intervals > 1 ? "intervals" : "interval"}${indexes && `, found by ${indexes}`}`;
  if (steps.some((step) => step.regions?.found.some((region) => region[2] === "aggregated"))) return "stored aggregates answer the query";
  if (steps.some((step) => step.regions?.found.some((region) => region[2] === "looked_up"))) return `found by ${indexes || "an index"}`;
  const because = steps.find((step) => step.because)?.because;
  if (because) return String(because);
  return steps.some((step) => /^whole stream/.test(String(step.replay ?? ""))) ? "reading only parts of them would not have been faster" : "";
}

/** The column of a term, as `S: vibration > 10.2`. */
function columnIn(term: string): string[] {
  const found = /^(?:\w+: )?("[^"]+"|[\w.]+)/.exec(term)?.[1];
  return found ? [found.replaceAll('"', "")] : [];
}
