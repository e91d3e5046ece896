/** Every event of one match as they happened: values over time with each event's variable, and a table. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askJson, messageOf } from "../api";
import type { Run } from "../query/run";
import { drawnAgain, penOf } from "../ui/canvas";
import { Loading, Scroll } from "../ui/loading";
import { colour, dark, localTimes, SERIES } from "../ui/preferences";
import { count, instantOf, moment, short, spot } from "../ui/numbers";
import { cellText } from "../ui/values";
import { GLYPHS, mark, SHAPES } from "./lanes";
import type { Drawn } from "./view";

interface Wire {
  columns: string[];
  rows: (string | number | boolean | null)[][];
  truncated: boolean;
}

/** Attributes that are drawn unless one is chosen. */
const CURVES = 2;

interface Props {
  run: Run;
  match: Drawn;
  time: string;
  variables: string[];
  partition: string[];
  integers: boolean;
  close: () => void;
}

export function Events({ run, match, time, variables, partition, integers, close }: Props) {
  const [wire, setWire] = useState<Wire | null>(null);
  const [problem, setProblem] = useState("");
  const [shown, setShown] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    setProblem("");
    askJson<Wire>("v1/matches", { sql: run.sql, ...params, mode: "events", match: { number: match.number, partition: match.partition } }, stop.signal).then(setWire, (error: unknown) => stop.signal.aborted || setProblem(messageOf(error)));
    return () => stop.abort();
  }, [match]);
  const at = wire?.columns.indexOf(time) ?? -1;
  const classifier = wire?.columns.indexOf("_variable") ?? -1;
  const numeric = (wire?.columns ?? []).filter((name, i) => i !== at && !name.startsWith("_") && wire?.rows.some((row) => typeof row[i] === "number"));
  const asked = /\bDEFINE\b([\s\S]*)/i.exec(run.sql)?.[1] ?? "";
  const conditions = numeric.filter((name) => asked.toLowerCase().includes(name.toLowerCase()));
  const first = (conditions.length ? conditions : numeric).slice(0, CURVES);
  const curves = numeric.includes(shown) ? [shown] : first;
  const listed = (wire?.columns ?? []).flatMap((name, i) => (name.startsWith("_") || i === at || partition.includes(name) ? [] : [i]));
  return (
    <section class="events" aria-label="Events of the match">
      <div class="options">
        <h2>{partition.length ? `${match.key} ` : ""}#{match.number}</h2>
        <span class="quiet">{spot(match.from, integers)} … {spot(match.to, integers)}{wire ? ` · ${wire.truncated ? "the first " : ""}${count(wire.rows.length)} events` : ""}</span>
        {numeric.length > 1 && <label><span class="quiet">Show</span> <select value={shown} onChange={(e) => setShown(e.currentTarget.value)}><option value="">{first.join(", ")}</option>{numeric.map((name) => <option key={name}>{name}</option>)}</select></label>}
        <span class="space" />
        <button type="button" onClick={close}>Close</button>
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {!wire && !problem && <Loading what="Reading the events…" />}
      {wire && (
        <div class="eventbody">
          {curves.length > 0 && <Curves wire={wire} at={at} names={curves} classifier={classifier} variables={variables} integers={integers} />}
          <Scroll label="Events, in order">
            <table class="list mono">
              <thead><tr><th>variable</th><th>{time}</th>{listed.map((i) => <th key={i}>{wire.columns[i]}</th>)}</tr></thead>
              <tbody>
                {wire.rows.slice(0, 1000).map((row, i) => (
                  <tr key={i}>
                    <td><Glyph of={variables.indexOf(String(row[classifier]))} /> {String(row[classifier] ?? "")}</td>
                    <td>{integers ? row[at] : String(row[at]).replace("T", " ")}</td>
                    {listed.map((k) => <td key={k} class={typeof row[k] === "number" ? "number" : ""}>{row[k] === null ? <i class="quiet">NULL</i> : cellText(row[k])}</td>)}
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </div>
      )}
    </section>
  );
}

/** The mark of a variable. */
export function Glyph({ of }: { of: number }) {
  if (of < 0) return null;
  return <span style={{ color: `var(--${SERIES[of % SERIES.length]})` }} aria-hidden="true">{GLYPHS[SHAPES[of % SHAPES.length] ?? "circle"]}</span>;
}

interface CurvesProps {
  wire: Wire;
  at: number;
  names: string[];
  classifier: number;
  variables: string[];
  integers: boolean;
}

const [LEFT, TITLE, FOOT] = [60, 18, 18];

/** Attributes of the events over the same time, one below the other. */
function Curves({ wire, at, names, classifier, variables, integers }: CurvesProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const key = names.join("\n");
  const curves = useMemo(
    () =>
      names.map((name) => {
        const column = wire.columns.indexOf(name);
        const points = wire.rows.flatMap((row) => (typeof row[column] === "number" ? [{ x: instantOf(String(row[at])), y: row[column], v: variables.indexOf(String(row[classifier])) }] : []));
        return { name, points };
      }),
    [wire, key],
  );
  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined;
    return drawnAgain(element, () => {
      const paper = penOf(element);
      const xs = curves.flatMap(({ points }) => points.map((point) => point.x));
      if (!paper || !xs.length) return;
      const { pen, width, height } = paper;
      const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
      const px = (x: number) => (x1 > x0 ? LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - 16) : (LEFT + width) / 2);
      const each = (height - FOOT) / curves.length;
      curves.forEach(({ name, points }, i) => drawCurve(pen, { name, points, top: i * each, height: each, width, px }));
      const text = (x: number) => (integers ? count(x) : moment(x, Math.max(1, x1 - x0)).slice(x1 - x0 > 2 * 86_400_000 ? 0 : 11));
      pen.fillStyle = colour("quiet");
      pen.fillText(text(x0), LEFT, height - 5);
      pen.textAlign = "right";
      if (x1 > x0) pen.fillText(text(x1), width - 8, height - 5);
    });
  }, [curves, dark.value, localTimes.value]);
  return <canvas class="curve" ref={canvas} role="img" aria-label={`${names.join(" and ")} of the match's events; the table has the values`} />;
}

interface Curve {
  name: string;
  points: { x: number; y: number; v: number }[];
  top: number;
  height: number;
  width: number;
  px: (x: number) => number;
}

function drawCurve(pen: CanvasRenderingContext2D, { name, points, top, height, width, px }: Curve): void {
  const ys = points.map((point) => point.y);
  const [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  const py = (y: number) => (y1 > y0 ? top + height - 8 - ((y - y0) / (y1 - y0)) * (height - TITLE - 16) : top + (height + TITLE) / 2);
  pen.textAlign = "left";
  pen.fillStyle = colour("text");
  pen.fillText(name, LEFT, top + 12);
  for (const y of y1 > y0 ? [y0, y1] : [y0]) {
    pen.fillStyle = colour("line");
    pen.fillRect(LEFT - 4, py(y), width - LEFT - 4, 1);
    pen.fillStyle = colour("quiet");
    pen.fillText(short(y), 8, py(y) + 4);
  }
  pen.strokeStyle = colour("quiet");
  pen.lineWidth = 1;
  pen.beginPath();
  points.forEach((point) => pen.lineTo(px(point.x), py(point.y)));
  pen.stroke();
  const size = Math.max(1.5, Math.min(4.5, (width - LEFT) / points.length / 2.6));
  for (const { x, y, v } of points) {
    if (v < 0) continue;
    pen.fillStyle = colour(SERIES[v % SERIES.length] as string);
    mark(pen, SHAPES[v % SHAPES.length] ?? "circle", px(x), py(y), size);
  }
}
