/** Every event of one match: its values over time with each event's variable, and as a table. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askJson, messageOf } from "../api";
import type { Run } from "../query/run";
import { colour, dark, SERIES } from "../ui/preferences";
import { count, instantOf, short, spot } from "../ui/numbers";
import { cellText } from "../ui/values";
import { mark, SHAPES } from "./lanes";
import type { Drawn } from "./view";

interface Wire {
  columns: string[];
  rows: (string | number | boolean | null)[][];
  truncated: boolean;
}

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
  const attribute = numeric.includes(shown) ? shown : (numeric[0] ?? "");
  const column = wire?.columns.indexOf(attribute) ?? -1;
  return (
    <section class="events" aria-label="Events of the match">
      <div class="options">
        <h2>{partition.length ? `${match.key} ` : ""}#{match.number}</h2>
        <span class="quiet">{spot(match.from, integers)} … {spot(match.to, integers)}{wire ? ` · ${count(wire.rows.length)} events${wire.truncated ? " (the first)" : ""}` : ""}</span>
        {numeric.length > 0 && <label><span class="quiet">Show</span> <select value={attribute} onChange={(e) => setShown(e.currentTarget.value)}>{numeric.map((name) => <option key={name}>{name}</option>)}</select></label>}
        <span class="space" />
        <button type="button" onClick={close}>Close</button>
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {wire && (
        <div class="eventbody">
          {column >= 0 && <Curve wire={wire} at={at} column={column} classifier={classifier} variables={variables} />}
          <div class="scroll">
            <table class="list mono">
              <thead><tr>{wire.columns.map((name) => <th key={name}>{name === "_variable" ? "variable" : name}</th>)}</tr></thead>
              <tbody>{wire.rows.slice(0, 1000).map((row, i) => <tr key={i}>{row.map((value, k) => <td key={k} class={typeof value === "number" ? "number" : ""}>{value === null ? <i class="quiet">NULL</i> : cellText(value)}</td>)}</tr>)}</tbody>
            </table>
          </div>
        </div>
      )}
    </section>
  );
}

function Curve({ wire, at, column, classifier, variables }: { wire: Wire; at: number; column: number; classifier: number; variables: string[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const points = useMemo(
    () => wire.rows.flatMap((row) => (typeof row[column] === "number" ? [{ x: instantOf(String(row[at])), y: row[column], v: variables.indexOf(String(row[classifier])) }] : [])),
    [wire, column],
  );
  useEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || !points.length) return undefined;
    const draw = () => {
      const ratio = devicePixelRatio || 1;
      const [width, height] = [element.clientWidth, element.clientHeight];
      element.width = width * ratio;
      element.height = height * ratio;
      pen.scale(ratio, ratio);
      const xs = points.map((point) => point.x);
      const ys = points.map((point) => point.y as number);
      const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const px = (x: number) => 60 + ((x - x0) / Math.max(1, x1 - x0)) * (width - 76);
      const py = (y: number) => height - 18 - ((y - y0) / (y1 - y0 || 1)) * (height - 36);
      pen.font = "11px system-ui, sans-serif";
      for (const y of [y0, (y0 + y1) / 2, y1]) {
        pen.fillStyle = colour("line");
        pen.fillRect(56, py(y), width - 60, 1);
        pen.fillStyle = colour("quiet");
        pen.fillText(short(y), 6, py(y) + 4);
      }
      pen.strokeStyle = colour("quiet");
      pen.beginPath();
      points.forEach((point) => pen.lineTo(px(point.x), py(point.y as number)));
      pen.stroke();
      for (const point of points) {
        if (point.v < 0) continue;
        pen.fillStyle = colour(SERIES[point.v % SERIES.length] as string);
        mark(pen, SHAPES[point.v % SHAPES.length] ?? "circle", px(point.x), py(point.y as number), 4);
      }
    };
    draw();
    const watch = new ResizeObserver(draw);
    watch.observe(element);
    return () => watch.disconnect();
  }, [points, dark.value]);
  return <canvas class="curve" ref={canvas} role="img" aria-label={`${wire.columns[column]} of the match's events; the table has the values`} />;
}
