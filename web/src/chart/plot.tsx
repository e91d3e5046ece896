/** uPlot as a component: sized by its box, coloured by the theme, with a cursor for the keyboard. */
import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import { colour, dark, localTimes } from "../ui/preferences";
import { moment, short } from "../ui/numbers";

export type Kind = "line" | "steps" | "area" | "bars" | "points";

export interface Line {
  label: string;
  colour: string;
  dash?: number[];
  kind: Kind;
  second?: boolean;
  /** Drawn as a band up to the line that follows. */
  bandWithNext?: boolean;
}

export interface PlotProps {
  label: string;
  data: uPlot.AlignedData;
  lines: Line[];
  time: boolean;
  height?: number;
  log?: boolean;
  legend?: boolean;
  /** Whether days are left out at the axis, and with them a line of text. */
  clocks?: boolean;
  /** Values of the left axis, with their unit, and steps between its lines. */
  text?: (value: number) => string;
  steps?: number[];
  /** Called with a range that was dragged; both ends in the unit of x. */
  chosen?: (from: number, to: number) => void;
  made?: (plot: uPlot) => void;
}

/** Of uPlot's own form: step in ms, text, and what is added where a year, day or minute begins. */
const TIMES: (string | number | null)[][] = [
  [31_536_000_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200_000, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400_000, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60_000, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1000, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

/** The same without days: for pictures in which there is little room. */
const CLOCKS = TIMES.map((row) => [row[0], row[1], null, null, null, null, null, null, 1]);

/** Values without a neighbour: no line shows them. */
function alone(plot: uPlot, of: number): number[] {
  const values = plot.data[of] ?? [];
  const ends = (i: number, step: number) => {
    let at = i + step;
    while (at >= 0 && at < values.length && values[at] === undefined) at += step; // of another group
    return typeof values[at] !== "number";
  };
  return Array.from(values.keys()).filter((i) => typeof values[i] === "number" && ends(i, -1) && ends(i, 1));
}

function series(line: Line): uPlot.Series {
  const stroke = colour(line.colour);
  const paths: Record<Kind, uPlot.Series.PathBuilder | undefined> = {
    line: uPlot.paths.linear?.(),
    area: uPlot.paths.linear?.(),
    steps: uPlot.paths.stepped?.({ align: 1 }),
    bars: uPlot.paths.bars?.({ size: [0.8, 40] }),
    points: () => null,
  };
  const made: uPlot.Series = {
    label: line.label,
    stroke,
    width: line.bandWithNext === undefined ? 1.6 : 0.6,
    scale: line.second ? "y2" : "y",
    points: { show: true, size: 4, fill: stroke, ...(line.kind === "points" ? {} : { filter: alone }) },
    value: (_, value) => (value === null || value === undefined ? "–" : String(value)),
    spanGaps: false,
  };
  const path = paths[line.kind];
  if (path) made.paths = path;
  if (line.dash) made.dash = line.dash;
  if (line.kind === "area" || line.kind === "bars") made.fill = `${stroke}30`;
  return made;
}

export function Plot(props: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { data, lines, time, log, chosen, legend = true } = props;
  useEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const text = colour("quiet");
    const line = colour("line");
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const scaleOf = log ? { distr: 3 as const } : {};
    const span = () => (plot.current?.scales.x?.max ?? 0) - (plot.current?.scales.x?.min ?? 0);
    const under = () => (legend ? (host.querySelector<HTMLElement>(".u-legend")?.offsetHeight ?? 34) : 0);
    const height = () => props.height ?? Math.max(160, host.clientHeight - under());
    const made = new uPlot(
      {
        width: Math.max(200, host.clientWidth),
        height: height(),
        ms: 1,
        tzDate: (ms) => (localTimes.value ? new Date(ms) : uPlot.tzDate(new Date(ms), "Etc/UTC")),
        scales: { x: { time }, y: scaleOf, y2: scaleOf },
        axes: [
          { ...axis, ...(props.clocks ? { size: 30 } : {}), values: time ? ((props.clocks ? CLOCKS : TIMES) as uPlot.Axis.Values) : (_, all) => all.map(short) },
          { ...axis, size: props.text ? 92 : 60, space: 26, ...(props.steps ? { incrs: props.steps } : {}), values: (_, all) => all.map((v) => (v === null ? "" : (props.text ?? short)(v))) },
          ...(lines.some((one) => one.second)
            ? [{ ...axis, side: 1, scale: "y2", size: 60, grid: { show: false }, values: (_: uPlot, all: number[]) => all.map((v) => (v === null ? "" : short(v))) }]
            : []),
        ],
        series: [
          { label: time ? "time" : "x", value: (_, v) => (v === null ? "–" : time ? moment(v, span()) : String(v)) },
          ...lines.map(series),
        ],
        bands: lines.flatMap((one, i) => (one.bandWithNext ? [{ series: [i + 1, i + 2] as [number, number], fill: `${colour(one.colour)}30` }] : [])),
        legend: { show: legend, live: true },
        cursor: { drag: { x: true, y: false, setScale: !chosen }, points: { size: 6 } },
        hooks: {
          setSelect: [
            (u) => {
              if (!chosen || u.select.width < 4) return;
              const from = u.posToVal(u.select.left, "x");
              const to = u.posToVal(u.select.left + u.select.width, "x");
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              chosen(from, to);
            },
          ],
        },
      },
      data,
      host,
    );
    plot.current = made;
    props.made?.(made);
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(200, host.clientWidth), height: height() }));
    watch.observe(host);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [data, lines, time, log, legend, dark.value, localTimes.value]);

  const onKey = (event: KeyboardEvent) => {
    const made = plot.current;
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!made || !by) return;
    event.preventDefault();
    const xs = made.data[0];
    const at = Math.max(0, Math.min(xs.length - 1, (made.cursor.idx ?? -1) + by));
    made.setCursor({ left: made.valToPos(xs[at] as number, "x"), top: 10 });
  };
  return <div class="plot" ref={box} role="img" aria-label={props.label} tabIndex={0} onKeyDown={onKey} />;
}
