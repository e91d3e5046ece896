/** What a run gave: its error, its rows, chart, matches and plan, and what it cost. */
import { useState } from "preact/hooks";
import { may, messageOf, session } from "../api";
import { copyRows, Grid } from "../grid/grid";
import { ChartView } from "../chart/view";
import { isRecent } from "../matches/pairs";
import { RecentView } from "../matches/recent";
import { isSituations, SituationsView } from "../matches/situations";
import { MatchesView } from "../matches/view";
import { PlanView } from "../plan/view";
import { Loading } from "../ui/loading";
import { bytes, count, seconds } from "../ui/numbers";
import { exportAs, FORMATS, type Format } from "./export";
import type { Run } from "./run";
import { Samples } from "./samples";
import { changeTab, type Tab, type View } from "./shelf";
import { RunProblem } from "./trouble";

const VIEWS: View[] = ["Table", "Chart", "Matches", "Plan"];

export function Outcome({ tab, run, say }: { tab: Tab; run: Run | undefined; say: (text: string) => void }) {
  const select = (view: View) => changeTab(tab.id, { view });
  const onKey = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = VIEWS[(VIEWS.indexOf(tab.view) + by + VIEWS.length) % VIEWS.length] as View;
    select(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div class="outcome">
      <div class="views">
        <div role="tablist" aria-label="Result" onKeyDown={onKey}>
          {VIEWS.map((view) => (
            <button key={view} type="button" role="tab" id={`tab-${view}`} aria-selected={view === tab.view} aria-controls="pane" tabIndex={view === tab.view ? 0 : -1} onClick={() => select(view)}>
              {view}
            </button>
          ))}
        </div>
        <span class="space" />
        {run?.answer.columns.value && <Taking run={run} say={say} filtered={tab.view === "Table"} />}
      </div>
      <div class="pane" role="tabpanel" id="pane" aria-labelledby={`tab-${tab.view}`}>
        {run ? <Pane key={run.answer.id} view={tab.view} run={run} /> : <Samples tab={tab} />}
      </div>
      {run && <Status run={run} />}
    </div>
  );
}

function Pane({ view, run }: { view: View; run: Run }) {
  const { answer } = run;
  const columns = answer.columns.value;
  const end = answer.end.value;
  const trouble = end && <Trouble run={run} />;
  if (end?.problem && !end.rows) return trouble;
  if (view === "Matches" && isRecent(run.sql)) return <RecentView run={run} />;
  if (view === "Matches") return isSituations(run.sql) ? <SituationsView run={run} /> : <MatchesView run={run} />;
  if (view === "Plan") return <PlanView run={run} />;
  if (!columns) return trouble || <Loading what="Running…" />;
  return (
    <>
      {trouble}
      {view === "Chart" ? <ChartView answer={answer} columns={columns} run={run} /> : <Table run={run} />}
    </>
  );
}

function Table({ run }: { run: Run }) {
  const columns = run.answer.columns.value ?? [];
  if (!columns.length) return <p class="empty">Done.</p>;
  return <Grid answer={run.answer} columns={columns} />;
}

/** An error, or an answer of which a part is missing: told before anything else. */
function Trouble({ run }: { run: Run }) {
  const end = run.answer.end.value;
  if (!end) return null;
  if (end.stopped) return <p class="banner" role="alert">Cancelled. {end.rows ? `These are the first ${count(end.rows)} rows.` : ""}</p>;
  if (end.problem) return <RunProblem run={run} problem={end.problem} />;
  if (!end.whole) {
    return (
      <div class="banner bad" role="alert">
        <strong>The answer is incomplete</strong>
        <p>The connection ended before the last row. Run the query again.</p>
      </div>
    );
  }
  return null;
}

function Taking({ run, say, filtered }: { run: Run; say: (text: string) => void; filtered: boolean }) {
  const [busy, setBusy] = useState(false);
  const [filter, setFilter] = useState("");
  const { answer } = run;
  const readOnly = session.value?.console === "read" || !may("write");
  const take = async (what: string) => {
    setBusy(true);
    try {
      if (what.startsWith("copy-")) {
        const form = what.slice(5) as "tsv" | "markdown" | "json";
        say(`Copied ${await copyRows(answer, form)}`);
      } else say(`Saved ${bytes(await exportAs(run, what as Format, readOnly))}`);
    } catch (error) {
      say(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  const { column, descending } = answer.arrangement.value;
  return (
    <>
      {filtered && <input class="filter" type="search" placeholder="Filter rows" aria-label="Filter rows" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && void answer.arrange(column, descending, filter)} onSearch={() => void answer.arrange(column, descending, filter)} />}
      <select aria-label="Export" disabled={busy} value="" onChange={(e) => (void take(e.currentTarget.value), (e.currentTarget.value = ""))}>
        <option value="" disabled>Export…</option>
        <optgroup label="Whole answer as a file">
          {Object.entries(FORMATS).map(([format, name]) => <option key={format} value={format}>{name}</option>)}
        </optgroup>
        <optgroup label="Copy what is loaded">
          <option value="copy-tsv">TSV</option>
          <option value="copy-markdown">Markdown</option>
          <option value="copy-json">JSON</option>
        </optgroup>
      </select>
    </>
  );
}

function Status({ run }: { run: Run }) {
  const { answer } = run;
  const end = answer.end.value;
  const shown = answer.arrangement.value.shown;
  const rows = answer.rows.value;
  return (
    <div class="statusline" role="status">
      <span>{count(rows)} {rows === 1 ? "row" : "rows"}{end?.truncated ? " (cut at the limit)" : ""}{shown !== rows ? `, ${count(shown)} shown` : ""}</span>
      <span>{bytes(answer.bytes.value)}</span>
      {end ? <span>{seconds(end.seconds)}</span> : <span>running…</span>}
      {end && phasesOf(end.timing).map(([name, ms]) => <span key={name} class="quiet">{name} {seconds(ms / 1000)}</span>)}
    </div>
  );
}

/** The phases of a Server-Timing header. */
export function phasesOf(header: string): [string, number][] {
  return [...header.matchAll(/([\w-]+);dur=([\d.]+)/g)].map((found) => [found[1] ?? "", Number(found[2])]);
}
