/** A link to a query.  It stands in the fragment, which browsers do not send: no log has it. */
import { place } from "../ui/place";
import { active, changeTab, newTab, type Tab, tabs } from "./shelf";

export const LIVE_NOTE = "CHRONICLE_CONSOLE=read: statements that change the store are refused";

export function permalink(tab: Tab): string {
  const parts = new URLSearchParams({ q: tab.sql });
  for (const [name, value] of Object.entries(tab.params)) parts.set(`p.${name}`, value);
  return `${location.origin}${location.pathname}#${parts}`;
}

/** Open what the address asks for, in a tab; nothing runs by itself. */
export function takePermalink(): void {
  const hash = location.hash.replace(/^#/, "");
  if (!hash.startsWith("q=")) return;
  const parts = new URLSearchParams(hash);
  const sql = parts.get("q") ?? "";
  history.replaceState(null, "", "#/query");
  place.value = location.hash;
  const known = tabs.value.find((tab) => tab.sql === sql);
  const tab = known ?? newTab(sql, "Shared");
  const params: Record<string, string> = { ...tab.params };
  for (const [name, value] of parts) if (name.startsWith("p.")) params[name.slice(2)] = value;
  changeTab(tab.id, { params });
  active.value = tab.id;
}
