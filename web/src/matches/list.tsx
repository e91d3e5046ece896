/** Matches as a list, and the one of them that is chosen. */
import { useEffect, useRef, useState } from "preact/hooks";
import { count, spot, stretch } from "../ui/numbers";
import type { Drawn } from "./view";

const LISTED = 300;

/** One is always chosen, the first to begin with, unless Escape has been pressed. */
export function useChosen(length: number) {
  const [chosen, choose] = useState(0);
  const move = (by: number) => choose(Math.max(0, Math.min(length - 1, chosen + by)));
  const onKey = (event: KeyboardEvent) => {
    if (event.target instanceof HTMLInputElement) return;
    if (event.key === "n") move(1);
    else if (event.key === "p") move(-1);
    else if (event.key === "Escape") choose(-1);
  };
  const steps = (
    <>
      <span class="space" />
      <button type="button" disabled={chosen <= 0} onClick={() => move(-1)} title="key p">Previous</button>
      <span class="quiet">{chosen >= 0 ? `${count(chosen + 1)} of ${count(length)}` : "none chosen"}</span>
      <button type="button" disabled={chosen >= length - 1} onClick={() => move(1)} title="key n">Next</button>
    </>
  );
  return { chosen, choose, onKey, steps };
}

interface Props {
  label: string;
  matches: Drawn[];
  /** Names of the columns by which matches are grouped. */
  keys: string[];
  integers: boolean;
  chosen: number;
  choose: (i: number) => void;
}

export function List({ label, matches, keys, integers, chosen, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const row = box.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (!row || !box.current) return; // only the list is moved, not the page around it
    const { scrollTop, clientHeight } = box.current;
    if (row.offsetTop < scrollTop + row.offsetHeight) box.current.scrollTop = row.offsetTop - 2 * row.offsetHeight;
    else if (row.offsetTop + row.offsetHeight > scrollTop + clientHeight) box.current.scrollTop = row.offsetTop + row.offsetHeight - clientHeight;
  }, [chosen]);
  const from = Math.max(0, Math.min(matches.length - LISTED, chosen - LISTED / 2));
  const events = matches.some((match) => match.events > 0);
  return (
    <div class="scroll matchlist" ref={box}>
      <table class="list" aria-label={label}>
        <thead><tr>{keys.map((name) => <th key={name}>{name}</th>)}<th class="number">#</th><th>Start</th><th class="number">Length</th>{events && <th class="number">Events</th>}</tr></thead>
        <tbody>
          {matches.slice(from, from + LISTED).map((match, j) => {
            const i = from + j;
            return (
              <tr key={i} aria-selected={i === chosen} class={i === chosen ? "on" : ""} onClick={() => choose(i)}>
                {match.partition.map((value, k) => <td key={k}>{value === null ? "NULL" : String(value)}</td>)}
                <td class="number">{match.number}</td>
                <td><button type="button" class="linklike" onClick={() => choose(i)}>{spot(match.from, integers)}</button></td>
                <td class="number">{stretch(match.from, match.to, integers)}</td>
                {events && <td class="number">{count(match.events)}</td>}
              </tr>
            );
          })}
        </tbody>
      </table>
      {matches.length > LISTED && <p class="quiet hint">Rows {count(from + 1)} to {count(Math.min(matches.length, from + LISTED))}; Next and Previous move on.</p>}
    </div>
  );
}
