/** The lanes of matches on a canvas: drag to move, wheel to zoom, click to choose. */
import { useEffect, useRef, useState } from "preact/hooks";
import { colour, dark, localTimes, SERIES } from "../ui/preferences";
import { fitted } from "../ui/canvas";
import { count, instantOf, moment, spot, stretch } from "../ui/numbers";
import { mark, placesOfMarks, SHAPES } from "./lanes";
import type { Drawn } from "./view";

/** The least height of a lane of marks, of single bars, and of each of several bars. */
const [LANE, BAR, BARS] = [22, 18, 13];
/** The width below which a match is a bar: marks would lie on each other. */
const NARROW = 14;
export const LABEL = 124;
export const RIGHT = 12;
const HEAD = 24;
const LANES_MAX = 400;

export interface Arrow {
  from: number;
  to: number;
  on: boolean;
}

interface Props {
  matches: Drawn[];
  lane: number[];
  groups: string[];
  variables: string[];
  hidden: Set<string>;
  chosen: number;
  choose: (i: number) => void;
  /** Whether x counts, instead of being a time. */
  integers: boolean;
  /** Told what is in view. */
  ranged: (range: [number, number]) => void;
  /** A bar for each variable from its first to its last time, instead of marks. */
  bars?: boolean;
  /** Between bars, by their places in `matches`; each bar then stands alone in its lane. */
  arrows?: Arrow[];
}

export function Timeline({ matches, lane, groups, variables, hidden, chosen, choose, integers, ranged, bars = false, arrows }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const first = Math.min(...matches.map((match) => match.from));
  const last = Math.max(...matches.map((match) => match.to), first + 1);
  const margin = (last - first) * 0.02;
  const [range, setRange] = useState<[number, number]>([first - margin, last + margin]);
  const [over, setOver] = useState(-1);
  const [[width, room], setBox] = useState<[number, number]>([600, 0]);
  const moved = useRef(false);
  const lanes = Math.min(LANES_MAX, groups.length);
  const least = arrows ? BAR : bars ? BARS * variables.length + 8 : LANE;
  const tall = Math.max(least, Math.floor((room - HEAD - 6) / Math.max(1, lanes)));
  const height = HEAD + lanes * tall + 6;
  const scale = (ms: number) => LABEL + ((ms - range[0]) / (range[1] - range[0])) * (width - LABEL - RIGHT);

  useEffect(() => setRange([first - margin, last + margin]), [matches]);
  useEffect(() => ranged(range), [range]);
  useEffect(() => {
    const one = matches[chosen];
    if (!one) return;
    if (!moved.current) {
      moved.current = true; // the one that is chosen at first is seen among all
      return;
    }
    const span = range[1] - range[0];
    const narrow = (one.to - one.from) / span < 0.02;
    if (narrow || one.from < range[0] || one.to > range[1]) {
      const wanted = Math.max(narrow ? 1 : span, (one.to - one.from) * (narrow ? 12 : 1.2));
      const middle = (one.from + one.to) / 2;
      setRange([middle - wanted / 2, middle + wanted / 2]);
    }
    const top = HEAD + (lane[chosen] ?? 0) * tall;
    const box = canvas.current?.parentElement;
    if (box && (top < box.scrollTop + HEAD || top > box.scrollTop + box.clientHeight - tall)) box.scrollTop = top - box.clientHeight / 2;
  }, [chosen]);

  useEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return undefined;
    const watch = new ResizeObserver(() => setBox([Math.max(260, box.clientWidth), box.clientHeight]));
    watch.observe(box);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen) return;
    const ratio = devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    axis(pen, range, scale, width, height, integers);
    let before = "";
    groups.slice(0, lanes).forEach((group, i) => {
      const y = HEAD + i * tall;
      if (group !== before) {
        pen.fillStyle = colour("line");
        pen.fillRect(0, y - 0.5, width, 1);
        pen.fillStyle = colour("text");
        pen.fillText(fitted(pen, group, LABEL - 16), 8, y + tall / 2);
      }
      before = group;
    });
    pen.save();
    pen.beginPath();
    pen.rect(LABEL, 0, width - LABEL, height);
    pen.clip();
    const drawMatch = (match: Drawn, i: number) => {
      const at = lane[i] ?? 0;
      if (at >= lanes || match.to < range[0] || match.from > range[1]) return;
      const y = HEAD + at * tall + tall / 2;
      const [x1, x2] = [scale(match.from), scale(match.to)];
      if (bars) {
        const together = arrows ? 1 : variables.length;
        const thick = Math.min(24, (tall - 8) / together);
        if (i === chosen) {
          pen.fillStyle = colour("selection");
          pen.fillRect(x1 - 4, y - tall / 2 + 1, Math.max(4, x2 - x1) + 8, tall - 2);
        }
        variables.forEach((name, v) => {
          const one = match.variables[name];
          if (!one) return;
          pen.fillStyle = colour(SERIES[v % SERIES.length] as string);
          const [a, b] = [scale(instantOf(one.first)), scale(instantOf(one.last))];
          pen.fillRect(a, y + ((arrows ? 0 : v) - together / 2) * thick, Math.max(3, b - a), thick - 2);
        });
        return;
      }
      const strong = i === chosen || i === over;
      if (x2 - x1 < NARROW) {
        const high = Math.min(24, tall * 0.5) + (i === chosen ? 6 : 0);
        pen.fillStyle = colour(strong ? "accent" : "series-7");
        pen.fillRect(x1 - 1, y - high / 2, Math.max(i === chosen ? 5 : 4, x2 - x1), high);
        return;
      }
      pen.fillStyle = colour(strong ? "accent" : "line");
      pen.fillRect(x1 - 1, y - (i === chosen ? 3 : 2), x2 - x1 + 2, i === chosen ? 6 : 4);
      const size = Math.min(7, Math.max(4.2, tall * 0.14));
      const marks: { x: number; v: number }[] = [];
      variables.forEach((name, v) => {
        const one = match.variables[name];
        if (!one?.count || hidden.has(name)) return;
        pen.fillStyle = colour(SERIES[v % SERIES.length] as string);
        const [a, b] = [scale(instantOf(one.first)), scale(instantOf(one.last))];
        if (one.count > 1 && b - a > 3) {
          pen.fillRect(a, y - 1.5, b - a, 3);
          const text = `×${count(one.count)}`;
          if (b - a > pen.measureText(text).width + 22) pen.fillText(text, (a + b) / 2 - pen.measureText(text).width / 2, y - 7);
          marks.push({ x: b, v });
        }
        marks.push({ x: a, v });
      });
      const apart = 2.6 * size;
      placesOfMarks(marks.map(({ x }) => x), Math.floor(tall / apart), apart).forEach((place, k) => {
        const { x, v } = marks[k] as { x: number; v: number };
        if (place === null) return; // zoomed in it has room
        pen.fillStyle = colour(SERIES[v % SERIES.length] as string);
        mark(pen, SHAPES[v % SHAPES.length] ?? "circle", x, y + place * apart, size);
      });
    };
    matches.forEach((match, i) => i !== chosen && drawMatch(match, i));
    const one = matches[chosen];
    if (one) drawMatch(one, chosen); // over its neighbours
    const end = (i: number): [number, number] => [scale(matches[i]?.to ?? 0), HEAD + (lane[i] ?? 0) * tall + tall / 2];
    for (const one of [...(arrows ?? [])].sort((a, b) => Number(a.on) - Number(b.on))) {
      if (Math.max(lane[one.from] ?? 0, lane[one.to] ?? 0) < lanes) arrow(pen, end(one.from), end(one.to), one.on);
    }
    pen.restore();
  }, [matches, arrows, lane, groups, hidden, chosen, over, range, width, tall, dark.value, localTimes.value]);

  const nearest = (event: MouseEvent): number => {
    const element = event.currentTarget as HTMLElement;
    const rect = element.getBoundingClientRect();
    const [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
    const at = Math.floor((y - HEAD) / tall);
    let best = -1;
    let distance = 8;
    matches.forEach((match, i) => {
      if (lane[i] !== at) return;
      const away = Math.max(0, scale(match.from) - x, x - scale(match.to));
      if (away < distance) [best, distance] = [i, away];
    });
    return best;
  };
  const zoom = (by: number, at = 0.5) => {
    const span = range[1] - range[0];
    const middle = range[0] + span * at;
    const wanted = Math.min((last - first + 2 * margin) * 1.05, Math.max(1, span * by));
    setRange([middle - wanted * at, middle + wanted * (1 - at)]);
  };
  const pan = (by: number) => setRange([range[0] + by, range[1] + by]);
  const onKey = (event: KeyboardEvent) => {
    const span = range[1] - range[0];
    if (event.key === "+" || event.key === "=") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (event.key === "ArrowLeft") pan(-span / 5);
    else if (event.key === "ArrowRight") pan(span / 5);
    else return;
    event.preventDefault();
  };
  const hovered = matches[over];
  return (
    <div class="timeline">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Timeline of ${count(matches.length)} matches from ${spot(first, integers)} to ${spot(last, integers)}; the table beside it has them all`}
        tabIndex={0}
        style={{ height: `${height}px`, width: `${width}px` }}
        title={hovered ? `${hovered.key} #${hovered.number}\n${spot(hovered.from, integers)} … ${spot(hovered.to, integers)} (${stretch(hovered.from, hovered.to, integers)})\n${variables.map((name) => `${name} × ${hovered.variables[name]?.count ?? 0}`).join(", ")}` : undefined}
        onKeyDown={onKey}
        onMouseMove={(event) => setOver(nearest(event))}
        onMouseLeave={() => setOver(-1)}
        onClick={(event) => {
          const found = nearest(event);
          if (found >= 0) choose(found);
        }}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
          event.preventDefault();
          zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, Math.min(1, (event.offsetX - LABEL) / (width - LABEL))));
        }}
        onPointerDown={(event) => {
          const element = event.currentTarget;
          const [from, start] = [event.clientX, range];
          const perPixel = (range[1] - range[0]) / (width - LABEL);
          element.onpointermove = (moved) => {
            if (Math.abs(moved.clientX - from) > 3) setRange([start[0] - (moved.clientX - from) * perPixel, start[1] - (moved.clientX - from) * perPixel]);
          };
          element.onpointerup = element.onpointerleave = () => (element.onpointermove = null);
        }}
      />
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(0.6)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1 / 0.6)}>−</button>
        <button type="button" onClick={() => setRange([first - margin, last + margin])}>All</button>
      </div>
      {groups.length > LANES_MAX && <p class="quiet hint">{count(groups.length - LANES_MAX)} more lanes are only in the table.</p>}
    </div>
  );
}

/** From the end of one bar to the end of another, which is later. */
function arrow(pen: CanvasRenderingContext2D, [x1, y1]: [number, number], [x2, y2]: [number, number], on: boolean): void {
  const bend = Math.max(12, Math.abs(x2 - x1) / 3);
  const head = 5;
  pen.strokeStyle = pen.fillStyle = colour(on ? "accent" : "quiet");
  pen.globalAlpha = on ? 1 : 0.55;
  pen.lineWidth = on ? 2 : 1;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - head, y2);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - head - 1, y2 - head + 1);
  pen.lineTo(x2 - head - 1, y2 + head - 1);
  pen.closePath();
  pen.fill();
  pen.globalAlpha = 1;
}

function roundStep(wanted: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
  return power * (([1, 2, 5].find((by) => power * by >= wanted)) ?? 10);
}

const STEPS = [1, 10, 100, 1e3, 5e3, 15e3, 6e4, 3e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 6048e5, 26298e5, 78894e5, 315576e5];

export function axis(pen: CanvasRenderingContext2D, range: [number, number], scale: (ms: number) => number, width: number, height: number, integers: boolean): void {
  const span = range[1] - range[0];
  const wanted = span / Math.max(2, (width - LABEL) / 150);
  const step = integers ? roundStep(wanted) : (STEPS.find((one) => one >= wanted) ?? wanted);
  pen.fillStyle = colour("surface");
  pen.fillRect(0, 0, width, height);
  for (let at = Math.ceil(range[0] / step) * step; at <= range[1]; at += step) {
    const x = scale(at);
    if (x < LABEL) continue;
    pen.fillStyle = colour("line");
    pen.fillRect(x, HEAD - 4, 1, height);
    pen.fillStyle = colour("quiet");
    const whole = integers ? count(at) : moment(at);
    const text = integers ? whole : step >= 864e5 ? whole.slice(0, 10) : step >= 6e4 ? whole.slice(5, 16) : whole.slice(11);
    const wide = pen.measureText(text).width;
    pen.fillText(text, x + 4 + wide > width ? x - 4 - wide : x + 4, HEAD / 2);
  }
}
