/** The tree of streams and views: click a name to put it into the text. */
import { useState } from "preact/hooks";
import { type Column, refreshStreams, type StreamInfo, streams, streamsProblem, type ViewInfo, views } from "../api";
import { quoted } from "./names";
import { short } from "../ui/numbers";

export function Tree({ insert }: { insert: (text: string) => void }) {
  const [filter, setFilter] = useState("");
  const [open, setOpen] = useState<Set<string>>(new Set());
  const wanted = filter.toLowerCase();
  const matches = ({ name, schema }: { name: string; schema?: Column[] }) =>
    [name, ...(schema ?? []).map((column) => column.name)].some((one) => one.toLowerCase().includes(wanted));
  const shown = [...(streams.value ?? []), ...views.value].filter(matches);
  const toggle = (name: string, to = !open.has(name)) => {
    const next = new Set(open);
    if (to) next.add(name);
    else next.delete(name);
    setOpen(next);
  };
  const onKey = (event: KeyboardEvent) => {
    const items = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=treeitem]")];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const name = items[at]?.dataset.stream;
    const by = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      items[Math.max(0, Math.min(items.length - 1, by))]?.focus();
    } else if (name && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      toggle(name, event.key === "ArrowRight");
    } else if (event.key === "Enter" && at >= 0) items[at]?.querySelector<HTMLElement>(".insert")?.click();
  };
  return (
    <nav class="tree" aria-label="Schema">
      <div class="treehead">
        <input type="search" placeholder="Filter" aria-label="Filter streams" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        <button type="button" class="icon" title="Reload" aria-label="Reload streams" onClick={() => void refreshStreams()}>↻</button>
      </div>
      <div role="tree" aria-label="Streams" onKeyDown={onKey}>
        {shown.map((one, i) => (
          <Branch key={one.name} of={one} first={i === 0} open={open.has(one.name)} toggle={toggle} insert={insert} />
        ))}
      </div>
      {!streams.value && !streamsProblem.value && <p class="quiet" role="status">Loading…</p>}
      {streamsProblem.value && <p class="quiet">{streamsProblem.value}</p>}
      {streams.value?.length === 0 && (
        <p class="quiet">No streams yet.</p>
      )}
    </nav>
  );
}

interface BranchProps {
  of: StreamInfo | ViewInfo;
  first: boolean;
  open: boolean;
  toggle: (name: string, to?: boolean) => void;
  insert: (text: string) => void;
}

function Branch({ of, first, open, toggle, insert }: BranchProps) {
  const { name } = of;
  const stream = "sql" in of ? null : of;
  if (stream?.damage) {
    return (
      <div role="treeitem" tabIndex={first ? 0 : -1} aria-level={1} class="branch broken" title={stream.damage}>
        <span class="line"><span class="caret" aria-hidden="true">⚠</span><span class="name">{name}</span><span class="count">damaged</span></span>
        <p class="damage">{stream.damage}</p>
      </div>
    );
  }
  const title = "sql" in of ? `${name}: a view\n${of.sql}` : spanText(of);
  return (
    <div class="branch" role="none">
      <div role="treeitem" aria-level={1} tabIndex={first ? 0 : -1} aria-expanded={open} data-stream={name} class="line">
        <button type="button" tabIndex={-1} class="caret" aria-label={open ? "Close" : "Open"} onClick={() => toggle(name)}>{open ? "▾" : "▸"}</button>
        <button type="button" tabIndex={-1} class="name insert" title={title} onClick={() => insert(quoted(name))}>{name}</button>
        <span class="count">{stream ? short(stream.count) : "view"}</span>
        {stream && <a class="more" tabIndex={-1} href={`#/streams/${encodeURIComponent(name)}`} aria-label={`About ${name}`}>→</a>}
      </div>
      {open && (
        <div class="group" role="none">
          {of.schema.map((column) => (
            <div key={column.name} role="treeitem" aria-level={2} tabIndex={-1} class="leaf">
              <button type="button" tabIndex={-1} class="name insert" onClick={() => insert(quoted(column.name))}>{column.name}</button>
              <span class="type" title={column.sql_type}>{column.sql_type}{column.name === stream?.time ? " · time" : ""}</span>
            </div>
          ))}
        </div>
      )}
    </div>
  );
}

function spanText(stream: StreamInfo): string {
  const span = stream.time_range ? `\n${stream.time_range.first} … ${stream.time_range.last}` : "";
  return `${stream.name}: ${stream.count.toLocaleString("en-US")} events${span}`;
}
