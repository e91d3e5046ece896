/** The query page: streams at the left, tabs with an editor above and what came of it below. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { effect } from "@preact/signals";
import { messageOf, refreshStreams, session } from "../api";
import { place } from "../ui/place";
import { LIVE_NOTE, permalink, takePermalink } from "./permalink";
import type { Editor } from "./editor";
import { check, diagnosticOf, forgetChecks } from "./check";
import { Outcome } from "./outcome";
import { cancel, forget, mayRun, runs, start } from "./run";
import { active, changeTab, closeTab, newTab, past, restore, type Tab, tabs } from "./shelf";
import { parametersOf, statementAt } from "./statements";
import { Tree } from "./tree";
import { Loading } from "../ui/loading";
import { count, seconds } from "../ui/numbers";
import { streams } from "../api";

export function QueryPage() {
  const [ready, setReady] = useState(false);
  useEffect(() => {
    void restore().then(() => {
      takePermalink();
      setReady(true);
    });
    void refreshStreams();
  }, []);
  useEffect(() => {
    if (ready) takePermalink();
  }, [place.value]);
  if (!ready) return <main class="query"><Loading /></main>;
  const tab = tabs.value.find((one) => one.id === active.value) ?? (tabs.value[0] as Tab);
  return <Workbench tab={tab} />;
}

function Workbench({ tab }: { tab: Tab }) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  /** The tab whose text the editor has. */
  const shown = useRef(tab.id);
  const [height, setHeight] = useState(() => (innerWidth > 760 && innerHeight > 1000 ? 220 : 150));
  const [note, setNote] = useState("");
  const [pastShown, showPast] = useState(false);
  const [treeShown, showTree] = useState(() => innerWidth > 760);
  const run = runs.value[tab.id];
  const end = run?.answer.end.value;
  const running = Boolean(run && !end);

  const runNow = () => {
    const now = tabs.peek().find((one) => one.id === active.peek());
    const at = editor.current;
    if (!now || !mayRun()) return;
    const { from, text } = at?.selection() ?? { from: 0, text: "" }; // the editor is being loaded
    const piece = text.trim() ? { from: from + text.indexOf(text.trim()), text: text.trim().replace(/;\s*$/, "") } : statementAt(now.sql, from);
    if (!piece) return;
    at?.settle();
    void start(now, piece.text, piece.from);
  };

  useEffect(() => {
    let live = true;
    void import("./editor").then(({ mountEditor }) => {
      if (!live || !host.current) return;
      editor.current = mountEditor(host.current, {
        text: textOf(shown.current),
        changed: (sql) => changeTab(shown.current, { sql }),
        run: runNow,
        check,
      });
      editor.current.view.focus();
    });
    const follow = effect(() => {
      void streams.value;
      forgetChecks();
    });
    return () => {
      live = false;
      follow();
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);

  // Effects run later than what made them necessary: what has been typed since stands in the shelf.
  useLayoutEffect(() => {
    editor.current?.open(textOf(tab.id));
    shown.current = tab.id;
  }, [tab.id]);
  useEffect(() => editor.current?.show(textOf(shown.current)), [tab.sql]);

  useEffect(() => {
    const problem = end?.problem;
    if (!run || !editor.current || !problem?.position) return;
    if (tab.sql.slice(run.from, run.from + run.sql.length) !== run.sql) return;
    editor.current.mark([diagnosticOf(problem, run.sql, run.from)]);
  }, [end]);

  const say = (text: string) => {
    setNote(text);
    setTimeout(() => setNote(""), 4000);
  };
  const names = parametersOf(tab.sql);
  return (
    <main class={treeShown ? "query" : "query narrow"}>
      <h1 class="unseen">Query</h1>
      {treeShown && <Tree insert={(text) => editor.current?.insert(text)} />}
      <section class="bench">
        <div class="tabs" role="group" aria-label="Open queries">
          <button type="button" class="icon" aria-label="Show streams" aria-pressed={treeShown} onClick={() => showTree(!treeShown)}>☰</button>
          {tabs.value.map((one) => (
            <span key={one.id} class={one.id === tab.id ? "tab on" : "tab"}>
              <button type="button" class="title" aria-current={one.id === tab.id} onClick={() => (active.value = one.id)} onDblClick={() => rename(one)} title="double click: rename">
                {one.title}
              </button>
              <button type="button" class="icon" aria-label={`Close ${one.title}`} onClick={() => (forget(one.id), closeTab(one.id))}>×</button>
            </span>
          ))}
          <button type="button" class="icon" aria-label="New query" onClick={() => newTab()}>+</button>
        </div>
        <div class="editor" style={{ height: `${height}px` }} ref={host} />
        <Splitter height={height} resize={setHeight} />
        {names.length > 0 && (
          <div class="params" role="group" aria-label="Parameters">
            {names.map((name) => (
              <label key={name}>
                <span>${name}</span>
                <input value={tab.params[name] ?? ""} onInput={(e) => changeTab(tab.id, { params: { ...tab.params, [name]: e.currentTarget.value } })} onKeyDown={(e) => e.key === "Enter" && runNow()} />
              </label>
            ))}
          </div>
        )}
        <div class="toolbar">
          {running ? (
            <button type="button" class="danger" onClick={() => run && void cancel(run)}>Cancel</button>
          ) : (
            <button type="button" class="primary" disabled={!mayRun()} onClick={runNow} title="Ctrl+Enter">Run</button>
          )}
          <NumberField label="Limit" value={tab.limit} set={(limit) => changeTab(tab.id, { limit })} />
          <NumberField label="Timeout" unit="s" value={tab.timeout} set={(timeout) => changeTab(tab.id, { timeout })} />
          <span class="space" />
          {note && <span class="note" role="status">{note}</span>}
          {session.value?.console === "read" && <span class="badge" title={LIVE_NOTE}>read only</span>}
          <button type="button" onClick={() => void copyLink(tab).then(say)}>Copy link</button>
          <button type="button" aria-expanded={pastShown} onClick={() => showPast(!pastShown)}>History</button>
        </div>
        {pastShown && <Past pick={(sql) => (newTab(sql), showPast(false))} />}
        <Outcome tab={tab} run={run} say={say} />
      </section>
    </main>
  );
}

function textOf(id: string): string {
  return tabs.peek().find((one) => one.id === id)?.sql ?? "";
}

async function copyLink(tab: Tab): Promise<string> {
  const link = permalink(tab);
  try {
    await navigator.clipboard.writeText(link);
    return "Link copied";
  } catch (error) {
    return messageOf(error);
  }
}

function rename(tab: Tab): void {
  const title = prompt("Name of this query", tab.title)?.trim();
  if (title) changeTab(tab.id, { title: title.slice(0, 60) });
}

/** What is typed counts at once where it is a number, and stays as it is typed until the field is left. */
function NumberField(props: { label: string; unit?: string; value: number; set: (value: number) => void }) {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        type="number"
        min={1}
        value={typed ?? props.value}
        onInput={(e) => {
          setTyped(e.currentTarget.value);
          const value = e.currentTarget.valueAsNumber;
          if (value > 0) props.set(value);
        }}
        onBlur={() => setTyped(null)}
      />
      {props.unit && <span>{props.unit}</span>}
    </label>
  );
}

const LEAST = 90;

function Splitter({ height, resize }: { height: number; resize: (height: number) => void }) {
  const set = (wanted: number) => resize(Math.max(LEAST, Math.min(innerHeight - 260, wanted)));
  return (
    <div
      class="splitter"
      role="separator"
      aria-label="Height of the editor"
      aria-orientation="horizontal"
      aria-valuenow={height}
      aria-valuemin={LEAST}
      aria-valuemax={1000}
      tabIndex={0}
      onKeyDown={(event) => {
        if (event.key === "ArrowDown") set(height + 24);
        else if (event.key === "ArrowUp") set(height - 24);
      }}
      onPointerDown={(event) => {
        const handle = event.currentTarget;
        const from = event.clientY;
        handle.setPointerCapture(event.pointerId);
        handle.onpointermove = (moved) => set(height + moved.clientY - from);
        handle.onpointerup = () => (handle.onpointermove = null);
      }}
    />
  );
}

function Past({ pick }: { pick: (sql: string) => void }) {
  return (
    <ul class="past" aria-label="History">
      {past.value.length === 0 && <li class="quiet">Nothing has run yet.</li>}
      {past.value.map((item) => (
        <li key={item.at}>
          <button type="button" onClick={() => pick(item.sql)}>
            <code>{item.sql.replace(/\s+/g, " ").slice(0, 160)}</code>
            <span class={item.failed ? "bad" : "quiet"}>
              {item.failed ? "failed" : `${count(item.rows)} rows`} · {seconds(item.seconds)} · {new Date(item.at).toISOString().slice(0, 16).replace("T", " ")}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
