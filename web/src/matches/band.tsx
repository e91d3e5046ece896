/** Above the lanes of matches: what the stream was like at the time, from the tree's aggregates. */
import { useEffect, useRef, useState } from "preact/hooks";
import { refreshStreams, streams } from "../api";
import { type Buckets, runsOf } from "../chart/buckets";
import { loadProfile, NUMERIC } from "../pages/profile";
import { drawnAgain, penOf } from "../ui/canvas";
import { colour, dark } from "../ui/preferences";
import { short } from "../ui/numbers";
import { LABEL, RIGHT } from "./timeline";

const BUCKETS = 300;
const WAIT_MS = 150;
const NUMBER = "events";

export function Band({ stream, range, integers }: { stream: string; range: [number, number]; integers: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const known = streams.value?.find((one) => one.name === stream);
  const numeric = (known?.schema ?? []).filter((column) => NUMERIC.test(column.sql_type) && column.name !== known?.time).map((column) => column.name);
  const [chosen, setChosen] = useState("");
  const name = chosen || (numeric[0] ?? NUMBER);
  const [found, setFound] = useState<Buckets | null>(null);
  useEffect(() => void (streams.value || refreshStreams()), []);
  useEffect(() => {
    if (!known) return undefined;
    let live = true;
    const later = setTimeout(() => {
      loadProfile(stream, name === NUMBER ? [] : [name], range, integers, BUCKETS).then(
        (buckets) => live && setFound(buckets),
        () => live && setFound(null), // the lanes stand for themselves
      );
    }, WAIT_MS);
    return () => {
      live = false;
      clearTimeout(later);
    };
  }, [stream, name, range, known]);
  useEffect(() => {
    const element = canvas.current;
    if (!element || !found) return undefined;
    return drawnAgain(element, () => drawBand(element, found, name, range));
  }, [found, range, dark.value]);
  return (
    <div class="band">
      <select aria-label="Shown above the matches" value={name} onChange={(e) => setChosen(e.currentTarget.value)}>
        {[...numeric, NUMBER].map((one) => <option key={one}>{one}</option>)}
      </select>
      <canvas ref={canvas} role="img" aria-label={`${name} of ${stream} at the time of the matches`} />
    </div>
  );
}

function drawBand(element: HTMLCanvasElement, found: Buckets, name: string, range: [number, number]): void {
  const paper = penOf(element);
  if (!paper) return;
  const { pen, width, height } = paper;
  const [high, low, mean] = found.envelopes[name] ?? [found.counts, found.counts.map(() => 0), found.counts];
  const known = [...high, ...low].filter((value): value is number => value !== null);
  if (!known.length) return;
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const x = (at: number) => LABEL + ((at - range[0]) / (range[1] - range[0])) * (width - LABEL - RIGHT);
  const y = (value: number) => height - 8 - ((value - least) / (most - least || 1)) * (height - 18);
  pen.fillStyle = colour("quiet");
  pen.textAlign = "right";
  pen.fillText(short(most), LABEL - 8, y(most) + 6);
  pen.fillText(short(least), LABEL - 8, y(least) + 2);
  pen.beginPath();
  pen.rect(LABEL, 0, width - LABEL, height);
  pen.clip();
  pen.fillStyle = `${colour("series-1")}40`;
  pen.strokeStyle = colour("series-1");
  for (const run of runsOf(found.at, high)) {
    pen.beginPath();
    for (const i of run) pen.lineTo(x(found.at[i] as number), y(high[i] as number));
    for (const i of run.toReversed()) pen.lineTo(x(found.at[i] as number), y(low[i] as number));
    pen.closePath();
    pen.fill();
    pen.beginPath();
    for (const i of run) pen.lineTo(x(found.at[i] as number), y(mean[i] ?? (high[i] as number)));
    if (run.length === 1) pen.lineTo(x(found.at[run[0] as number] as number) + 1.5, y(mean[run[0] as number] ?? (high[run[0] as number] as number)));
    pen.stroke();
  }
}
