/** Below a history map: of the partitions that were replayed most, a lane each, over the same time. */
import { useEffect, useRef, useState } from "preact/hooks";
import { drawnAgain, fitted, penOf } from "../ui/canvas";
import { colour, dark } from "../ui/preferences";
import { count } from "../ui/numbers";

export interface Lane {
  key: string;
  found: [number, number][];
}

const LANE = 16;
const LABEL = 96;
const FEW = 8;

export function PartitionLanes({ lanes, range, partitions }: { lanes: Lane[]; range: [number, number]; partitions: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [all, setAll] = useState(false);
  const shown = all ? lanes : lanes.slice(0, FEW);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    return drawnAgain(element, () => {
      const found = penOf(element);
      if (!found) return;
      const { pen, width } = found;
      pen.textBaseline = "middle";
      const at = (ms: number) => LABEL + ((ms - range[0]) / Math.max(1, range[1] - range[0])) * (width - LABEL);
      shown.forEach((lane, i) => {
        const y = i * LANE;
        pen.fillStyle = colour("line");
        pen.fillRect(LABEL, y + LANE - 1, width - LABEL, 1);
        pen.fillStyle = colour("text");
        pen.fillText(fitted(pen, lane.key, LABEL - 8), 0, y + LANE / 2);
        pen.fillStyle = colour("series-2");
        for (const [from, to] of lane.found) pen.fillRect(Math.min(at(from), width - 2), y + 3, Math.max(2, at(to) - at(from)), LANE - 7);
      });
    });
  }, [shown.length, lanes, range[0], range[1], dark.value]);
  const more = lanes.length - FEW;
  return (
    <figure class="partitions">
      <canvas ref={canvas} role="img" style={{ height: `${shown.length * LANE}px` }} aria-label={`Replayed partitions: ${shown.map((lane) => lane.key).join(", ")}`} />
      <figcaption class="quiet">
        {count(shown.length)} of {count(partitions)} partitions that are replayed, those with the longest stretches{" "}
        {more > 0 && <button type="button" class="linklike" aria-expanded={all} onClick={() => setAll(!all)}>{all ? "fewer" : `${count(more)} more`}</button>}
      </figcaption>
    </figure>
  );
}
