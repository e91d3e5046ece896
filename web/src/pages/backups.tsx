/** Backups that jobs have written: a delete does not reach those that were made before it. */
import { Instead, Scroll } from "../ui/loading";
import { bytes, count } from "../ui/numbers";
import { useRepeated } from "../ui/repeated";

interface Backup {
  name: string;
  made_at: string | null;
  state: "whole" | "unfinished" | "damaged";
  events: number;
  streams: Record<string, number>;
  bytes: number;
  problem: string | null;
}

const TONES: Record<Backup["state"], string> = { whole: "good", unfinished: "warn", damaged: "bad" };
const EVERY_MS = 10_000;

export function Backups() {
  const { found, problem } = useRepeated<{ configured: boolean; backups: Backup[] }>("v1/backups", EVERY_MS);
  const backups = found?.backups.toReversed() ?? [];
  return (
    <section aria-label="Backups">
      <div class="options"><h2>Backups</h2><span class="quiet">a backup still contains what was deleted after it started</span></div>
      <Instead of={found && backups} problem={problem} none={found?.configured ? "No backups yet." : "No backups: CHRONICLE_BACKUP_DIRECTORY is not set."} />
      {backups.length > 0 && (
        <Scroll label="Backups, newest first" tall>
          <table class="list" aria-label="Backups">
            <thead><tr><th>Name</th><th>Started</th><th>State</th><th class="number">Events</th><th class="number">Size</th><th>Streams</th></tr></thead>
            <tbody>
              {backups.map((one) => (
                <tr key={one.name}>
                  <td>{one.name}</td>
                  <td>{one.made_at?.slice(0, 19).replace("T", " ") ?? "–"}</td>
                  <td><span class={`badge ${TONES[one.state]}`}>{one.state}</span>{one.problem && <span class="bad"> {one.problem}</span>}</td>
                  <td class="number">{count(one.events)}</td>
                  <td class="number">{bytes(one.bytes)}</td>
                  <td class="quiet columns">{Object.entries(one.streams).map(([name, events]) => `${name} ${count(events)}`).join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}
