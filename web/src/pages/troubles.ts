/** What of a server needs somebody's attention, in plain words. */
import { bytes, count, seconds } from "../ui/numbers";
import type { StatusSnapshot } from "./health";
import type { LiveQuery } from "./live";

/** Room on the disk below which something has to be done. */
const DISK_LEAST = 2 * 1024 ** 3;

export function troubles(found: StatusSnapshot, live: LiveQuery[]): string[] {
  const wrong: string[] = [];
  const { store, gates, disk_free_bytes: free } = found;
  if (found.state !== "ready") wrong.push(`The server is ${found.state}.`);
  if (found.trouble) wrong.push(found.trouble);
  if (store.streams_damaged) wrong.push(`${plural(store.streams_damaged, "stream is", "streams are")} damaged and cannot be read: see Streams.`);
  if (free !== null && free < DISK_LEAST) wrong.push(`Only ${bytes(free)} of the disk is free: a full disk refuses new events.`);
  for (const [name, gate] of Object.entries(gates)) {
    if (gate.waiting && gate.running >= gate.limit) wrong.push(`All ${count(gate.limit)} slots for ${name} are in use: ${plural(gate.waiting, "waits", "wait")}.`);
  }
  for (const one of live) if (one.state === "failed") wrong.push(`The live query ${one.name} has failed: ${one.error ?? "see Live"}.`);
  if (store.moves_failing_seconds) wrong.push(`Segments have not been moved to the object store for ${seconds(store.moves_failing_seconds)}.`);
  return wrong;
}

function plural(number: number, one: string, many: string): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}
