// The frame around every screen: where one can go, search, whether it is live, and who looks.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, get, login, needsLogin, query, session, whoAmI } from "./api";
import { PLACES, helpOpen } from "./keys";
import { ActionDialog } from "./parts/actions";
import { Banner, Command, Empty, Skeleton, Time, toast } from "./parts/common";
import { Icon, type IconName, Mark } from "./parts/icons";
import { Health } from "./parts/status";
import { go, href, params, parts, pathname } from "./router";
import { CompositionList, CompositionScreen } from "./screens/composition";
import { ControlPlaneScreen } from "./screens/control-plane";
import { FleetScreen } from "./screens/fleet";
import { FunctionList, FunctionScreen } from "./screens/function";
import { OperationsScreen } from "./screens/operations";
import { PoliciesScreen } from "./screens/policies";
import { PreviewList, PreviewScreen } from "./screens/preview";
import { RolloutList, RolloutScreen } from "./screens/rollout";
import { RunScreen } from "./screens/run";
import { XrScreen } from "./screens/xr";
import { asOf, live, liveMessage, subscribe } from "./stream";
import { switchTheme, theme } from "./theme";
import type { SearchPage } from "./types";

const NAV: [string, IconName, string, string[]][] = [
  ["/", "fleet", "Fleet", ["", "xr", "run"]],
  ["/compositions", "composition", "Compositions", ["compositions", "composition"]],
  ["/functions", "function", "Functions", ["functions", "function"]],
];
const CHANGE: typeof NAV = [
  ["/rollouts", "rollout", "Rollouts", ["rollouts", "rollout"]],
  ["/previews", "preview", "Previews", ["previews", "preview"]],
  ["/policies", "policy", "Policies", ["policies"]],
];
const RUN: typeof NAV = [
  ["/operations", "operation", "Operations", ["operations"]],
  ["/control-plane", "plane", "Control plane", ["control-plane"]],
];

export function App() {
  const started = useSignal(false);
  const failed = useSignal<ApiError | null>(null);
  useEffect(() => {
    const begin = async () => {
      const code = new URLSearchParams(location.hash.slice(1)).get("code");
      if (code) history.replaceState(null, "", location.pathname + location.search);
      try {
        if (code) await login({ code });
        else await whoAmI();
      } catch (error) {
        failed.value = error instanceof ApiError ? error : new ApiError(0, "", String(error), "");
        if (failed.value.code === 401) needsLogin.value = true;
      }
      started.value = true;
    };
    void begin();
  }, []);
  if (!started.value) return <div class="content"><Skeleton /></div>;
  if (needsLogin.value || !session.value) return <Login error={failed.value} />;
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <div class="frame">
        <Rail />
        <div class="main">
          <Top />
          <main class="content" id="main" tabIndex={-1}>
            {!live.value && liveMessage.value !== "connecting" && (
              <Banner tone="warn" icon="warn">
                <p>
                  <b>Not live.</b> {liveMessage.value || "The control plane does not answer."} What you see is as of <Time at={asOf.value} suffix=" ago" />.
                </p>
              </Banner>
            )}
            <Routed />
          </main>
        </div>
      </div>
      <ActionDialog />
      <Help />
      <div aria-live="polite">{toast.value && <div class="toast">{toast.value}</div>}</div>
    </>
  );
}

function Routed() {
  // Every screen is live, also one that shows what never changes: whether the control plane is heard is worth knowing.
  useEffect(() => subscribe(["definitions"], () => {}), []);
  const [first = "", ...rest] = parts.value;
  useEffect(() => {
    const name = rest.length ? rest[rest.length - 1] : first;
    document.title = name ? `${name} · planform` : "planform";
  }, [pathname.value]);
  switch (first) {
    case "":
      return <FleetScreen />;
    case "xr":
      return <XrScreen kind={rest[0] ?? ""} namespace={rest[1] ?? ""} name={rest[2] ?? ""} />;
    case "run":
      return <RunScreen uid={rest[0] ?? ""} id={rest[1] ?? ""} />;
    case "compositions":
      return <CompositionList />;
    case "composition":
      return <CompositionScreen name={rest[0] ?? ""} />;
    case "functions":
      return <FunctionList />;
    case "function":
      return <FunctionScreen name={rest[0] ?? ""} />;
    case "rollouts":
      return <RolloutList />;
    case "rollout":
      return <RolloutScreen name={rest[0] ?? ""} />;
    case "previews":
      return <PreviewList />;
    case "preview":
      return <PreviewScreen name={rest[0] ?? ""} />;
    case "policies":
      return <PoliciesScreen />;
    case "operations":
      return <OperationsScreen />;
    case "control-plane":
      return <ControlPlaneScreen />;
    default:
      return (
        <Empty icon="question" title="There is no such screen">
          <a class="link" href={href("/")}>
            To the fleet
          </a>
        </Empty>
      );
  }
}

function Rail() {
  const first = parts.value[0] ?? "";
  const who = session.value!;
  const links = (items: typeof NAV) => (
    <nav aria-label={items === NAV ? "Fleet" : items === CHANGE ? "Change" : "Run"}>
      {items.map(([to, icon, label, firsts]) => (
        <a key={to} href={href(to)} aria-current={firsts.includes(first) ? "page" : undefined}>
          <Icon name={icon} />
          {label}
        </a>
      ))}
    </nav>
  );
  return (
    <header class="rail">
      <a class="brand" href={href("/")} aria-label="planform: the fleet">
        <Mark />
        <span>planform</span>
      </a>
      {links(NAV)}
      <div class="group">Change</div>
      {links(CHANGE)}
      <div class="group">Run</div>
      {links(RUN)}
      <footer>
        <span title={who.groups.join(", ")}>{who.user}</span>
        <span>{who.server.replace(/^https?:\/\//, "")}</span>
        {who.readOnly && <span class="badge">read-only</span>}
      </footer>
    </header>
  );
}

function Top() {
  return (
    <div class="top">
      <Search />
      <span class="grow" />
      <span class={`live${live.value ? "" : " off"}`} title={liveMessage.value}>
        <i aria-hidden="true" />
        <span>{live.value ? "Live" : "Not live"}</span>
      </span>
      <button type="button" class="icon-button" onClick={switchTheme} aria-label={`Use ${theme.value === "dark" ? "light" : "dark"} colours`} title="Light or dark">
        <Icon name={theme.value === "dark" ? "sun" : "moon"} />
      </button>
      <button type="button" class="icon-button" onClick={() => (helpOpen.value = true)} aria-label="Keyboard help" title="Keyboard (?)">
        <Icon name="question" />
      </button>
    </div>
  );
}

function Search() {
  const text = useSignal("");
  const page = useSignal<SearchPage | null>(null);
  const at = useSignal(0);
  const open = useSignal(false);
  useEffect(() => {
    text.value = "";
    open.value = false;
  }, [pathname.value]);
  const ask = (value: string) => {
    text.value = value;
    at.value = 0;
    open.value = Boolean(value.trim());
    if (value.trim()) get<SearchPage>(`/search${query({ q: value })}`).then((found) => text.value === value && (page.value = found), () => {});
  };
  const found = open.value ? (page.value?.found ?? []) : [];
  const everything = () => go(`/?q=${encodeURIComponent(text.value)}`);
  return (
    <div class="find" role="search">
      <Icon name="search" />
      <input
        id="search"
        type="search"
        autocomplete="off"
        placeholder="Find XRs, compositions, labels, revisions"
        aria-label="Find anything by name, kind, label or revision"
        role="combobox"
        aria-expanded={found.length > 0}
        aria-controls="found"
        aria-activedescendant={found.length ? `found-${at.value}` : undefined}
        value={text.value}
        onInput={(event) => ask(event.currentTarget.value)}
        onBlur={() => setTimeout(() => (open.value = false), 150)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") at.value = Math.min(found.length - 1, at.value + 1);
          else if (event.key === "ArrowUp") at.value = Math.max(0, at.value - 1);
          else if (event.key === "Enter") {
            const chosen = found[at.value];
            event.currentTarget.blur();
            if (chosen) go(chosen.link);
            else if (text.value.trim()) everything();
          } else return;
          event.preventDefault();
        }}
      />
      {!text.value && <kbd aria-hidden="true">/</kbd>}
      <div id="found" role="listbox" aria-label="Found" class={found.length ? "found" : "hidden"}>
        {found.map((each, index) => (
          <a key={each.link} id={`found-${index}`} role="option" aria-selected={index === at.value} href={href(each.link)} tabIndex={-1}>
            <span class="badge">{each.kind}</span>
            <span class="grow break">
              {each.namespace && <span class="muted">{each.namespace}/</span>}
              {each.name}
            </span>
            {each.health && <Health value={each.health} />}
          </a>
        ))}
      </div>
    </div>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [helpOpen.value]);
  const rows: [string, string][] = [
    ["/", "search"],
    ["j k", "next and previous row"],
    ["Enter", "open the row"],
    ["← →", "close and open a branch of the tree"],
    ...PLACES.map(([key, , name]) => [`g ${key}`, name] as [string, string]),
    ["?", "this help"],
  ];
  return (
    <dialog ref={dialog} onClose={() => (helpOpen.value = false)} aria-labelledby="help-title">
      <form method="dialog">
        <h2 id="help-title">Keyboard</h2>
        <div class="keys">
          {rows.map(([keys, what]) => (
            <>
              <span class="row">
                {keys.split(" ").map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </span>
              <span>{what}</span>
            </>
          ))}
        </div>
        <div class="foot">
          <button class="button" type="submit">
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Login({ error }: { error: ApiError | null }) {
  const token = useSignal("");
  const failed = useSignal<ApiError | null>(error?.code === 401 && !params.value.size ? null : error);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await login({ token: token.value.trim() });
    } catch (refused) {
      failed.value = refused instanceof ApiError ? refused : new ApiError(0, "", String(refused), "");
    }
  };
  return (
    <main class="login">
      <section class="card">
        <div class="body">
          <div class="brand">
            <Mark />
            planform
          </div>
          <h1>Log in</h1>
          {error && (
            <Banner tone={error.code === 401 ? "info" : "bad"} icon={error.code === 401 ? "info" : "warn"}>
              <p>{error.message}</p>
              {error.hint && <p class="muted">{error.hint}</p>}
            </Banner>
          )}
          <p class="muted">Get a link that works once, for a minute:</p>
          <Command text={location.protocol === "https:" ? "planform dashboard --link" : "planform dashboard"} />
          {location.protocol === "https:" && (
            <form onSubmit={submit} class="stack">
              <label>
                Or paste a bearer token
                <input type="password" autocomplete="off" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
              </label>
              {failed.value && failed.value !== error && (
                <Banner tone="bad" icon="cross">
                  {failed.value.message}
                </Banner>
              )}
              <button class="button primary" type="submit">
                Log in
              </button>
            </form>
          )}
        </div>
      </section>
    </main>
  );
}
