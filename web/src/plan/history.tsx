/**
 * The history map: what of a stream a query replayed, looked up or skipped.
 *
 * One strip a scan; x is the stream's time.  A region's width is its share of time, the figures
 * beside the strip are shares of events.
 */
import { useEffect, useRef } from "preact/hooks";
import { drawnAgain, penOf } from "../ui/canvas";
import { colour, dark, localTimes } from "../ui/preferences";
import { count, share, spot } from "../ui/numbers";

/** Start and end in milliseconds since 1970 (integers where the stream counts), what was done there, and to how many events. */
export type Region = [number, number, string, number];

const KINDS: Record<string, { name: string; colour: string; hatch: boolean }> = {
  replayed: { name: "replayed", colour: "series-2", hatch: false },
  read: { name: "read", colour: "series-2", hatch: false },
  aggregated: { name: "answered by the tree", colour: "series-3", hatch: false },
  looked_up: { name: "looked up", colour: "series-1", hatch: false },
  skipped: { name: "skipped", colour: "line", hatch: true },
};

/** From the first of some regions to the last. */
export function rangeOf(regions: Region[]): [number, number] {
  return [Math.min(...regions.map((region) => region[0])), Math.max(...regions.map((region) => region[1]))];
}

export function HistoryMap({ regions, cut, integers = false, indented = false }: { regions: Region[]; cut: boolean; integers?: boolean; indented?: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [first, last] = rangeOf(regions);
  const kinds = [...new Set(regions.map((region) => region[2]))];
  const total = regions.reduce((sum, region) => sum + region[3], 0);
  const of = (kind: string) => regions.reduce((sum, region) => sum + (region[2] === kind ? region[3] : 0), 0);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    return drawnAgain(element, () => {
      const found = penOf(element);
      if (!found) return;
      const { pen: context, width, height } = found;
      const at = (ms: number) => ((ms - first) / Math.max(1, last - first)) * width;
      // what was done is drawn over what was left out, and never narrower than a pixel
      for (const kind of [...kinds].sort((a) => (a === "skipped" ? -1 : 1))) {
        const look = KINDS[kind] ?? { colour: "series-4", hatch: false };
        context.fillStyle = look.hatch ? hatched(context, colour("quiet")) : colour(look.colour);
        for (const [from, to, what] of regions) {
          if (what === kind) context.fillRect(at(from), 0, Math.max(1, at(to) - at(from)), height);
        }
      }
    });
  }, [regions, dark.value]);
  // of partitions only some events are read where something is
  const nameOf = (kind: string) => (indented && kind === "read" ? "partly read" : (KINDS[kind]?.name ?? kind));
  const summary = kinds.map((kind) => `${nameOf(kind)} ${share(of(kind), total)}`).join(", ");
  return (
    <figure class={indented ? "history indented" : "history"}>
      <canvas ref={canvas} role="img" aria-label={`History map: ${summary}`} />
      <figcaption>
        <span class="quiet">{spot(first, integers, last - first)}</span>
        {kinds.map((kind) => (
          <span key={kind} class="key">
            <i class={KINDS[kind]?.hatch ? "swatch hatch" : "swatch"} style={KINDS[kind]?.hatch ? {} : { background: `var(--${KINDS[kind]?.colour ?? "series-4"})` }} />
            {nameOf(kind)} <b>{share(of(kind), total)}</b> <span class="quiet">{count(of(kind))} events</span>
          </span>
        ))}
        {cut && <span class="quiet">simplified for drawing</span>}
        <span class="quiet">{spot(last, integers, last - first)}{localTimes.value || integers ? "" : " UTC"}</span>
      </figcaption>
    </figure>
  );
}

function hatched(context: CanvasRenderingContext2D, stroke: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  if (!pen) return stroke;
  pen.strokeStyle = stroke;
  pen.globalAlpha = 0.35;
  pen.beginPath();
  pen.moveTo(0, 6);
  pen.lineTo(6, 0);
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? stroke;
}
