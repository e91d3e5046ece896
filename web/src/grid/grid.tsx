/**
 * A table of any length: only the rows in view exist.
 *
 * Browsers stop drawing beyond some 16.7 million pixels.  The spacer is capped below that, and where
 * the rows would be higher the scroll position is scaled: a full-length scroll still reaches the
 * last row, and the wheel and the keys still move by rows.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { useComputed, useSignal } from "@preact/signals";
import type { Answer } from "../arrow/answer";
import type { ColumnFigures, ColumnHead, CopyForm } from "../arrow/protocol";
import { count } from "../ui/numbers";

export const ROW = 24;
const SPACER_MAX = 16_000_000;
const MARGIN = 8;
const CELL_TEXT_MAX = 400;

interface Place {
  row: number;
  column: number;
}

/** First row in view for a scroll position, and where the rows then stand. */
export function rowAt(scrollTop: number, rows: number, view: number): number {
  const full = rows * ROW;
  const spacer = Math.min(full, SPACER_MAX);
  if (spacer === full) return Math.floor(scrollTop / ROW);
  const most = Math.max(1, spacer - view);
  const last = Math.max(0, rows - Math.floor(view / ROW));
  return Math.min(last, Math.round((scrollTop / most) * last));
}

/** The scroll position that shows a row first. */
export function scrollFor(row: number, rows: number, view: number): number {
  const full = rows * ROW;
  if (full <= SPACER_MAX) return row * ROW;
  const last = Math.max(1, rows - Math.floor(view / ROW));
  return (Math.min(row, last) / last) * (SPACER_MAX - view);
}

function widthOf(head: ColumnHead, sample: (string | null)[][], at: number): number {
  let most = head.name.length + 0.9 * head.type.length + 3;
  for (const row of sample) most = Math.max(most, Math.min(48, (row[at] ?? "NULL").length));
  return Math.round(Math.min(420, Math.max(72, most * 7.4 + 22)));
}

export function Grid({ answer, columns }: { answer: Answer; columns: ColumnHead[] }) {
  const body = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const view = useSignal(400);
  const [page, setPage] = useState<{ start: number; rows: (string | null)[][] }>({ start: 0, rows: [] });
  const [widths, setWidths] = useState<number[]>([]);
  const [at, setAt] = useState<Place>({ row: 0, column: 0 });
  const [detail, setDetail] = useState<Place | null>(null);
  const [figures, setFigures] = useState<Map<number, ColumnFigures>>(new Map());
  const [frozen, setFrozen] = useState(0);
  const arrangement = answer.arrangement.value;
  const rows = arrangement.shown;
  const first = useComputed(() => rowAt(top.value, answer.arrangement.value.shown, view.value)).value;
  const visible = Math.ceil(view.value / ROW) + 1;
  const start = Math.max(0, first - MARGIN);
  const wanted = Math.min(rows - start, visible + 2 * MARGIN);

  useEffect(() => {
    let live = true;
    if (wanted > 0) {
      void answer.page(start, wanted).then((found) => {
        if (!live) return;
        setPage({ start, rows: found });
        setWidths((old) => (old.length === columns.length ? old : columns.map((c, i) => widthOf(c, found, i))));
      });
    } else setPage({ start: 0, rows: [] });
    return () => {
      live = false;
    };
  }, [answer, start, wanted, arrangement]);

  useEffect(() => {
    const element = body.current;
    if (!element) return undefined;
    const watch = new ResizeObserver(() => (view.value = element.clientHeight - ROW - 4));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const order = async (column: number) => {
    const same = arrangement.column === column;
    if (same && arrangement.descending) await answer.arrange(-1, false, arrangement.filter);
    else await answer.arrange(column, same, arrangement.filter);
  };

  const show = (row: number) => {
    const element = body.current;
    if (!element) return;
    if (row < first || row >= first + Math.floor(view.value / ROW)) {
      const wantedFirst = row < first ? row : row - Math.floor(view.value / ROW) + 1;
      element.scrollTop = scrollFor(Math.max(0, wantedFirst), rows, view.value);
    }
  };

  const move = (row: number, column: number) => {
    const next = {
      row: Math.max(0, Math.min(rows - 1, row)),
      column: Math.max(0, Math.min(columns.length - 1, column)),
    };
    setAt(next);
    show(next.row);
  };

  const onKey = (event: KeyboardEvent) => {
    const step = Math.max(1, Math.floor(view.value / ROW) - 1);
    const moves: Record<string, [number, number]> = {
      ArrowDown: [at.row + 1, at.column],
      ArrowUp: [at.row - 1, at.column],
      ArrowRight: [at.row, at.column + 1],
      ArrowLeft: [at.row, at.column - 1],
      PageDown: [at.row + step, at.column],
      PageUp: [at.row - step, at.column],
      Home: event.ctrlKey ? [0, 0] : [at.row, 0],
      End: event.ctrlKey ? [rows - 1, columns.length - 1] : [at.row, columns.length - 1],
    };
    const found = moves[event.key];
    if (found) {
      event.preventDefault();
      move(...found);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      setDetail(at);
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey)) {
      void answer.page(at.row, 1).then((r) => navigator.clipboard.writeText(r[0]?.[at.column] ?? ""));
    }
  };

  const figuresOf = async (column: number) => {
    if (figures.has(column)) return;
    const found = await answer.figures(column);
    setFigures((old) => new Map(old).set(column, found));
  };

  const spacer = Math.min(rows * ROW, SPACER_MAX);
  const scaled = rows * ROW > SPACER_MAX;
  const shift = scaled ? top.value + (page.start - first) * ROW : page.start * ROW;
  const template = columns.map((_, i) => `${widths[i] ?? 140}px`).join(" ");
  const total = columns.reduce((sum, _, i) => sum + (widths[i] ?? 140), 64);
  const left = (column: number) =>
    64 + columns.slice(0, column).reduce((sum, _, i) => sum + (widths[i] ?? 140), 0);
  const stuck = (column: number) =>
    column < frozen ? { position: "sticky", left: `${left(column)}px`, zIndex: 1 } : {};

  return (
    <div class="gridbox">
      <div
        class="grid"
        role="grid"
        aria-label="Results"
        aria-rowcount={rows + 1}
        aria-colcount={columns.length}
        aria-activedescendant={rows ? `cell-${at.row}-${at.column}` : undefined}
        tabIndex={0}
        ref={body}
        onScroll={(event) => (top.value = event.currentTarget.scrollTop)}
        onKeyDown={onKey}
      >
        <div class="gridhead" role="row" aria-rowindex={1} style={{ width: `${total}px`, gridTemplateColumns: `64px ${template}` }}>
          <div class="rownumber" role="columnheader" aria-label="Row">#</div>
          {columns.map((column, i) => (
            <div
              key={i}
              class={column.numeric ? "th number" : "th"}
              role="columnheader"
              aria-colindex={i + 1}
              aria-sort={arrangement.column !== i ? "none" : arrangement.descending ? "descending" : "ascending"}
              style={stuck(i)}
              title={figureText(column, figures.get(i))}
              onMouseEnter={() => void figuresOf(i)}
            >
              <button type="button" class="sort" tabIndex={-1} onClick={() => void order(i)} onDblClick={() => setFrozen(frozen === i + 1 ? 0 : i + 1)}>
                <span class="name">{column.name}</span>
                <span class="type">{column.type}</span>
                {arrangement.column === i && <span aria-hidden="true">{arrangement.descending ? "▼" : "▲"}</span>}
              </button>
              <Handle width={widths[i] ?? 140} resize={(width) => setWidths((old) => old.with(i, width))} />
            </div>
          ))}
        </div>
        <div class="spacer" style={{ height: `${spacer}px`, width: `${total}px` }} role="presentation">
          <div class="rows" style={{ transform: `translateY(${shift}px)` }} role="rowgroup">
            {page.rows.map((cells, i) => {
              const row = page.start + i;
              return (
                <div key={row} class="tr" role="row" aria-rowindex={row + 2} style={{ gridTemplateColumns: `64px ${template}` }}>
                  <div class="rownumber" role="rowheader">{count(row + 1)}</div>
                  {cells.map((text, column) => (
                    <div
                      key={column}
                      id={`cell-${row}-${column}`}
                      role="gridcell"
                      aria-colindex={column + 1}
                      aria-selected={at.row === row && at.column === column}
                      class={`td${columns[column]?.numeric ? " number" : ""}${text === null ? " null" : ""}`}
                      style={stuck(column)}
                      onClick={() => setAt({ row, column })}
                      onDblClick={() => setDetail({ row, column })}
                    >
                      {text === null ? "NULL" : cut(text)}
                    </div>
                  ))}
                </div>
              );
            })}
          </div>
        </div>
        {rows === 0 && answer.end.value && <p class="empty">No rows.</p>}
      </div>
      {detail && <Detail answer={answer} columns={columns} place={detail} close={() => setDetail(null)} />}
    </div>
  );
}

function cut(text: string): string {
  return text.length > CELL_TEXT_MAX ? `${text.slice(0, CELL_TEXT_MAX)}…` : text;
}

function figureText(column: ColumnHead, found: ColumnFigures | undefined): string {
  if (!found) return `${column.name}: ${column.type}`;
  const nulls = found.nulls ? `, ${count(found.nulls)} nulls` : ", no nulls";
  const range = found.min === null ? "" : `\n${cut(found.min)} … ${cut(found.max ?? "")}`;
  return `${column.name}: ${column.type}${nulls}${range}\nclick: sort; double click: freeze`;
}

function Handle({ width, resize }: { width: number; resize: (width: number) => void }) {
  return (
    <span
      class="handle"
      aria-hidden="true"
      onPointerDown={(event) => {
        const from = event.clientX;
        const handle = event.currentTarget;
        handle.setPointerCapture(event.pointerId);
        handle.onpointermove = (moved) => resize(Math.max(48, width + moved.clientX - from));
        handle.onpointerup = () => (handle.onpointermove = null);
      }}
    />
  );
}

function Detail(props: { answer: Answer; columns: ColumnHead[]; place: Place; close: () => void }) {
  const { answer, columns, place, close } = props;
  const [cells, setCells] = useState<(string | null)[]>([]);
  useEffect(() => void answer.page(place.row, 1).then((found) => setCells(found[0] ?? [])), [answer, place]);
  const text = cells[place.column] ?? "NULL";
  return (
    <aside class="detail" aria-label="Cell">
      <header>
        <strong>{columns[place.column]?.name}</strong>
        <span class="quiet">row {count(place.row + 1)}</span>
        <button type="button" onClick={() => void navigator.clipboard.writeText(text)}>Copy</button>
        <button type="button" onClick={close}>Close</button>
      </header>
      <pre tabIndex={0}>{text.length > 200_000 ? `${text.slice(0, 200_000)}…` : text}</pre>
    </aside>
  );
}

const COPIED_MAX = 100_000;

export async function copyRows(answer: Answer, form: CopyForm): Promise<string> {
  const rows = Math.min(COPIED_MAX, answer.arrangement.value.shown);
  await navigator.clipboard.writeText(await answer.copy(0, rows, form));
  return rows < answer.arrangement.value.shown ? `the first ${count(rows)} rows` : `${count(rows)} rows`;
}
