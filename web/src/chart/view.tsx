/** A chart of an answer: x is its first time column, like `chronicle sql -o x.svg` has it. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Answer } from "../arrow/answer";
import type { ColumnHead } from "../arrow/protocol";
import { newTab } from "../query/shelf";
import { save } from "../query/export";
import {  } from "../api";
import { quoted } from "../query/names";
import { SERIES } from "../ui/preferences";
import { count } from "../ui/numbers";
import type { Run } from "../query/run";
import { asGroups, asLines, type Drawn } from "./arrange";
import { type Kind, type Line, Plot } from "./plot";

const POINTS_MAX = 400_000;
const KINDS: Kind[] = ["line", "steps", "area", "bars", "points"];
const UNSET = -2;
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];

export function ChartView({ answer, columns, run }: { answer: Answer; columns: ColumnHead[]; run: Run }) {
  const numeric = columns.flatMap((column, i) => (column.numeric ? [i] : []));
  const firstX = Math.max(0, columns.findIndex((column) => column.time));
  const [x, setX] = useState(firstX);
  const [ys, setYs] = useState<number[]>(() => numeric.filter((i) => i !== firstX).slice(0, 3));
  const [second, setSecond] = useState(UNSET);
  const [key, setKey] = useState(-1);
  const [kind, setKind] = useState<Kind>("line");
  const [log, setLog] = useState(false);
  const [range, setRange] = useState<[number, number] | null>(null);
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [step, setStep] = useState(1);
  const plot = useRef<uPlot | null>(null);
  const ended = Boolean(answer.end.value);

  useEffect(() => {
    let live = true;
    void (async () => {
      const found = await answer.series([x, ...ys], POINTS_MAX);
      const [xs, ...rest] = found.values as [Float64Array, ...Float64Array[]];
      let made: Drawn;
      if (key >= 0 && rest[0]) {
        const texts = await answer.texts(key, found.step === 1 ? xs.length : answer.rows.value);
        const keys = found.step === 1 ? texts : texts.filter((_, i) => i % found.step === 0);
        made = asGroups(xs, rest[0], keys, SERIES.length);
      } else made = asLines(xs, rest, ys.map((i) => columns[i]?.name ?? ""));
      if (!live) return;
      setStep(found.step);
      setDrawn(made);
      if (key < 0 && second === UNSET) setSecond(ys.find((_, i) => i > 0 && apart(made.lines[0]?.y, made.lines[i]?.y)) ?? -1);
    })();
    return () => {
      live = false;
    };
  }, [answer, x, ys, key, ended]);

  const lines = useMemo<Line[]>(
    () =>
      (drawn?.lines ?? []).map((line, i) => ({
        label: line.label,
        colour: SERIES[i % SERIES.length] as string,
        ...(DASHES[Math.floor(i / SERIES.length) % 4] ? { dash: DASHES[Math.floor(i / SERIES.length) % 4] as number[] } : {}),
        kind,
        second: key < 0 && ys[i] === second,
      })),
    [drawn, kind, second],
  );
  const data = useMemo(() => [drawn?.x ?? [], ...(drawn?.lines.map((line) => line.y) ?? [])] as uPlot.AlignedData, [drawn]);

  if (!numeric.length) return <p class="empty">No column of this answer is a number: there is nothing to draw.</p>;
  const time = columns[x]?.time ?? false;
  const toggle = (i: number) => setYs(ys.includes(i) ? ys.filter((one) => one !== i) : [...ys, i]);
  return (
    <div class="chart">
      <div class="options">
        <Choice label="x" value={x} set={setX} options={columns.map((c, i) => [i, c.name] as const).filter(([i]) => columns[i]?.time || columns[i]?.numeric)} />
        <fieldset>
          <legend class="quiet">y</legend>
          {numeric.filter((i) => i !== x).map((i) => (
            <label key={i}><input type="checkbox" checked={ys.includes(i)} onChange={() => toggle(i)} /> {columns[i]?.name}</label>
          ))}
        </fieldset>
        <Choice label="Lines by" value={key} set={setKey} options={[[-1, "–"], ...columns.map((c, i) => [i, c.name] as const).filter(([i]) => i !== x && !ys.includes(i))]} />
        {key < 0 && ys.length > 1 && <Choice label="Right axis" value={second} set={setSecond} options={[[-1, "–"], ...ys.map((i) => [i, columns[i]?.name ?? ""] as const)]} />}
        <label><span class="quiet">Kind</span> <select value={kind} onChange={(e) => setKind(e.currentTarget.value as Kind)}>{KINDS.map((one) => <option key={one}>{one}</option>)}</select></label>
        <label><input type="checkbox" checked={log} onChange={() => setLog(!log)} /> log</label>
        <span class="space" />
        {time && range && <button type="button" onClick={() => newTab(within(run.sql, columns[x]?.name ?? "", range))}>Query this range</button>}
        <button type="button" onClick={() => plot.current?.ctx.canvas.toBlob((blob) => blob && save(blob, "chart.png"))}>PNG</button>
      </div>
      {step > 1 && <p class="quiet note">Every {count(step)}th row is drawn: let windows (TUMBLE) condense so many.</p>}
      {drawn && drawn.left > 0 && <p class="quiet note">{count(drawn.left)} more groups have no line.</p>}
      {drawn && drawn.x.length > 0 ? (
        <Plot label={`Chart of ${ys.map((i) => columns[i]?.name).join(", ")} over ${columns[x]?.name}`} data={data} lines={lines} time={time} log={log} made={(made) => {
          plot.current = made;
          (made.hooks.setScale ??= []).push((u, name) => {
            const { min, max } = u.scales.x ?? {};
            const all = u.data[0];
            if (name === "x" && min != null && max != null) setRange(min > (all[0] ?? 0) || max < (all.at(-1) ?? 0) ? [min, max] : null);
          });
        }} />
      ) : (
        <p class="empty">Nothing to draw.</p>
      )}
    </div>
  );
}

/** Whether two lines are of so different size that one axis would flatten one of them. */
function apart(a: (number | null)[] | undefined, b: (number | null)[] | undefined): boolean {
  const most = (all: (number | null)[] = []) => all.reduce<number>((top, one) => Math.max(top, Math.abs(one ?? 0)), 0);
  const [x, y] = [most(a), most(b)];
  return x > 0 && y > 0 && Math.max(x / y, y / x) > 20;
}

function Choice({ label, value, set, options }: { label: string; value: number; set: (value: number) => void; options: (readonly [number, string])[] }) {
  return (
    <label>
      <span class="quiet">{label}</span>{" "}
      <select value={value} onChange={(e) => set(Number(e.currentTarget.value))}>
        {options.map(([i, name]) => <option key={i} value={i}>{name}</option>)}
      </select>
    </label>
  );
}

function within(sql: string, column: string, [from, to]: [number, number]): string {
  const text = (ms: number) => `TIMESTAMP '${new Date(ms).toISOString().replace("T", " ").replace("Z", "")}'`;
  const name = quoted(column);
  return `SELECT * FROM (\n${sql}\n) AS shown\nWHERE ${name} >= ${text(from)} AND ${name} < ${text(to)}`;
}
