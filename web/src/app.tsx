/** The console: header, pages by the address's fragment, login. */
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/query.css";
import "./style/pages.css";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { may, messageOf, refreshSession, refreshStreams, type Scope, session, token, tokenWanted, useToken } from "./api";
import { HealthPage } from "./pages/health";
import { HelpPage } from "./pages/help";
import { ImportPage } from "./pages/import";
import { LivePage } from "./pages/live";
import { StreamsPage } from "./pages/streams";
import { QueryPage } from "./query/page";
import { Loading } from "./ui/loading";
import { place } from "./ui/place";
import { localTimes, showLocalTimes, theme, type Theme } from "./ui/preferences";

/** A page whose script is loaded when it is asked for. */
function later(load: () => Promise<() => preact.JSX.Element>) {
  return function Later() {
    const [Page, setPage] = useState<(() => preact.JSX.Element) | null>(null);
    useEffect(() => void load().then((page) => setPage(() => page)), []);
    return Page ? <Page /> : <main class="page"><Loading /></main>;
  };
}

const PAGES = {
  query: ["Query", QueryPage],
  streams: ["Streams", StreamsPage],
  live: ["Live", LivePage],
  health: ["Health", HealthPage],
  import: ["Import", ImportPage],
  admin: ["Admin", later(() => import("./pages/admin").then((one) => one.AdminPage))],
  help: ["Help", HelpPage],
} as const;

/** For whom a page is: who has one of these scopes. */
const FOR: Partial<Record<Name, Scope[]>> = {
  query: ["read", "write", "admin"],
  streams: ["read", "ingest"],
  live: ["read", "operate"],
  import: ["ingest"],
  admin: ["admin", "operate"],
};

const offered = (name: Name) => FOR[name]?.some((scope) => may(scope)) ?? true;

type Name = keyof typeof PAGES;

function pageOf(hash: string): { name: Name; rest: string } {
  const [, name = "", rest = ""] = /^#\/([a-z]+)\/?(.*)$/.exec(hash) ?? [];
  if (name in PAGES) return { name: name as Name, rest };
  const first = !session.value || hash.startsWith("#q=") ? "query" : (Object.keys(PAGES) as Name[]).find(offered);
  return { name: first ?? "query", rest };
}

/** Instead of a page that this token has no use for. */
function NotOffered({ name }: { name: Name }) {
  return (
    <main class="page">
      <div class="pagehead"><h1>{PAGES[name][0]}</h1></div>
      <p class="empty">
        {session.value?.console === "read" ? "This console is read-only." : "Your token does not allow this page."} It takes{" "}
        {FOR[name]?.map((scope, i) => <span key={scope}>{i ? " or " : "the scope "}<code>{scope}</code></span>)}.
      </p>
    </main>
  );
}

function App() {
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    refreshSession().then(() => setTrouble(""), (error: unknown) => setTrouble(messageOf(error)));
  }, []);
  const { name, rest } = pageOf(place.value);
  const Page = PAGES[name][1] as (props: { rest: string }) => preact.JSX.Element;
  const asked = tokenWanted.value || (!session.value && !trouble && tokenWanted.value);
  useEffect(() => void (document.title = `${PAGES[name][0]} · Chronicle`), [name]);
  return (
    <>
      <Header current={name} />
      {session.value?.open && session.value.console === "full" && <OpenNote />}
      {trouble && <p class="banner bad" role="alert">{trouble}</p>}
      {asked ? <Login /> : session.value ? (offered(name) ? <Page key={name} rest={rest} /> : <NotOffered name={name} />) : !trouble && <main class="page"><Loading /></main>}
    </>
  );
}

function Header({ current }: { current: Name }) {
  return (
    <header class="top">
      <a class="brand" href="#/query" aria-label="Chronicle"><img src="./icon.svg" alt="" width={20} height={20} /> <span>Chronicle</span></a>
      <nav aria-label="Pages">
        {(Object.keys(PAGES) as Name[]).filter(offered).map((name) => (
          <a key={name} href={`#/${name}`} ref={(link) => void (name === current && link?.scrollIntoView({ block: "nearest", inline: "nearest" }))} aria-current={name === current ? "page" : undefined}>{PAGES[name][0]}</a>
        ))}
      </nav>
      <span class="space" />
      <button type="button" class="quiet" title="Time zone of the times shown" onClick={() => showLocalTimes(!localTimes.value)}>{localTimes.value ? "Local time" : "UTC"}</button>
      <select aria-label="Theme" value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as Theme)}>
        <option value="auto">Auto</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
      {token.value && (
        <button type="button" class="quiet" title={session.value?.scopes.join(", ") ?? ""} onClick={() => (useToken(""), location.reload())}>
          {session.value?.name ?? "token"} · Sign out
        </button>
      )}
    </header>
  );
}

const noteSeen = signal(sessionStorage.getItem("chronicle.open-note") === "seen");

function OpenNote() {
  if (noteSeen.value) return null;
  const hide = () => {
    sessionStorage.setItem("chronicle.open-note", "seen");
    noteSeen.value = true;
  };
  return (
    <aside class="banner slim" aria-label="Note">
      <span>This server has no tokens: everyone on this machine may do everything. Admin or <code>chronicle token create NAME</code> restricts it.</span>
      <button type="button" class="icon" aria-label="Hide this note" onClick={hide}>×</button>
    </aside>
  );
}

function Login() {
  const [typed, setTyped] = useState("");
  const [wrong, setWrong] = useState(Boolean(token.value));
  const enter = async (event: Event) => {
    event.preventDefault();
    useToken(typed.trim());
    await refreshSession();
    if (session.value) void refreshStreams();
    setWrong(!session.value);
  };
  return (
    <main class="login">
      <form onSubmit={(event) => void enter(event)}>
        <h1>Sign in with a token</h1>
        <p class="quiet"><code>chronicle token create NAME --scope read</code> creates one. This browser tab keeps it until it is closed.</p>
        <label>
          <span>Token</span>
          <input type="password" autoComplete="off" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
        </label>
        {wrong && <p role="alert" class="bad">The server does not know this token, or it has expired.</p>}
        <button type="submit" class="primary">Sign in</button>
      </form>
    </main>
  );
}

render(<App />, document.getElementById("app") as HTMLElement);
