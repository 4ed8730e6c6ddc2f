// Small things that every screen uses.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../api";
import { ago, exact } from "../format";
import { href } from "../router";
import { type Listener, subscribe } from "../stream";
import type { Condition } from "../types";
import { Icon, type IconName } from "./icons";
import { Phase } from "./status";

export const minute = signal(Date.now());
setInterval(() => (minute.value = Date.now()), 10_000);
export const toast = signal("");
let fading: ReturnType<typeof setTimeout> | undefined;
export function say(text: string): void {
  toast.value = text;
  clearTimeout(fading);
  fading = setTimeout(() => (toast.value = ""), 6000);
}

export interface Loaded<T> {
  value: T | null;
  error: ApiError | null;
  loading: boolean;
  again: () => void;
}

/** Ask, and ask again when one of the topics changed: what is shown stays until the new answer is there. */
export function useLive<T>(key: string, load: (abort: AbortSignal) => Promise<T>, topics: string[], xr = "", ids?: (id: string) => boolean): Loaded<T> {
  const state = useSignal<{ key: string; value: T | null; error: ApiError | null; loading: boolean }>({ key, value: null, error: null, loading: true });
  const reload = useRef<() => void>(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let busy = false;
    let again = false;
    if (state.peek().key !== key) state.value = { key, value: null, error: null, loading: true };
    const run = async () => {
      if (busy) {
        again = true; // one question at a time: a burst of changes is one more question
        return;
      }
      busy = true;
      try {
        const value = await load(abort.signal);
        if (!abort.signal.aborted) state.value = { key, value, error: null, loading: false };
      } catch (error) {
        if (abort.signal.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError(0, "Unknown", String(error), "");
        state.value = { key, value: known.code === 0 ? state.peek().value : null, error: known, loading: false };
      } finally {
        busy = false;
      }
      if (again && !abort.signal.aborted) {
        again = false;
        void run();
      }
    };
    reload.current = () => void run();
    void run();
    const listener: Listener = (changes) => {
      if (changes === null || !ids || changes.some((change) => change.topic !== "xrs" || ids(change.id))) void run();
    };
    const stop = subscribe(topics, listener, xr);
    return () => {
      abort.abort();
      stop();
    };
  }, [key]);
  const { value, error, loading } = state.value;
  return state.value.key === key ? { value, error, loading, again: () => reload.current() } : { value: null, error: null, loading: true, again: () => {} };
}

export function Time({ at, suffix = "" }: { at: string; suffix?: string }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={exact(at)} class="num">
      {ago(at, minute.value)}
      {suffix}
    </time>
  );
}

export function Card(props: { title: ComponentChildren; side?: ComponentChildren; children: ComponentChildren; flush?: boolean; id?: string }) {
  return (
    <section class="card" id={props.id}>
      <header>
        <h2>{props.title}</h2>
        {props.side}
      </header>
      {props.flush ? props.children : <div class="body">{props.children}</div>}
    </section>
  );
}

export function Banner({ tone, icon, children }: { tone: "bad" | "warn" | "info"; icon: IconName; children: ComponentChildren }) {
  return (
    <div class={`banner ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      <Icon name={icon} />
      <div class="grow break">{children}</div>
    </div>
  );
}

export function Command({ text }: { text: string }) {
  const done = useSignal(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = true;
      setTimeout(() => (done.value = false), 1500);
    } catch {
      say("The browser did not let the page copy; select the text instead.");
    }
  };
  return (
    <div class="command">
      <code>{text}</code>
      <button type="button" class="icon-button" onClick={copy} aria-label={done.value ? "Copied" : `Copy: ${text}`} title="Copy">
        <Icon name={done.value ? "check" : "copy"} />
      </button>
    </div>
  );
}

export function Empty({ icon, title, children, commands = [] }: { icon: IconName; title: string; children?: ComponentChildren; commands?: string[] }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {commands.length > 0 && (
        <div class="commands">
          {commands.map((text) => (
            <Command key={text} text={text} />
          ))}
        </div>
      )}
    </div>
  );
}

export function Failure({ error, again }: { error: ApiError; again: () => void }) {
  return (
    <div class="banner bad" role="alert">
      <Icon name="warn" />
      <div class="grow break">
        <p>
          <b>{error.code === 404 ? "Not found" : error.code === 403 ? "Not allowed" : "It did not work"}.</b> {error.message}
        </p>
        {error.hint && <p class="muted">{error.hint}</p>}
      </div>
      <button type="button" class="button" onClick={again}>
        Try again
      </button>
    </div>
  );
}

export function Skeleton() {
  return (
    <div class="skeleton" role="status" aria-busy="true" aria-label="Loading">
      <i />
      <i />
      <i />
    </div>
  );
}

/** What is there, or the skeleton, or what went wrong. */
export function Screen<T>({ loaded, children }: { loaded: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {loaded.error && <Failure error={loaded.error} again={loaded.again} />}
      {loaded.value ? children(loaded.value) : loaded.loading && <Skeleton />}
    </>
  );
}

export function Crumbs({ items }: { items: [string, string][] }) {
  return (
    <nav class="crumbs" aria-label="Where you are">
      {items.map(([label, to], index) => (
        <>
          {index > 0 && <span aria-hidden="true">/</span>}
          {to ? <a href={href(to)}>{label}</a> : <span>{label}</span>}
        </>
      ))}
    </nav>
  );
}

export function Conditions({ items, none }: { items: Condition[]; none: string }) {
  if (!items.length) return <p class="body muted">{none}</p>;
  return (
    <ul class="conditions">
      {items.map((each) => (
        <li key={each.type}>
          <div class="row wrap">
            <Phase value={each.status} chip={false} label={`${each.type}: ${each.status === "True" ? "yes" : each.status === "False" ? "no" : "unknown"}`} />
            <span class="muted small">{each.reason}</span>
            <span class="faint small" style={{ marginLeft: "auto" }}>
              <Time at={each.since} suffix=" ago" />
            </span>
          </div>
          {each.message && <p>{each.message}</p>}
        </li>
      ))}
    </ul>
  );
}

export function Bar({ parts, tall = false, label }: { parts: { size: number; class: string; title: string }[]; tall?: boolean; label: string }) {
  const total = parts.reduce((sum, part) => sum + part.size, 0);
  return (
    <div class={`bar${tall ? " tall" : ""}`} role="img" aria-label={label}>
      {total > 0 && parts.filter((part) => part.size > 0).map((part) => <i key={part.title} class={part.class} style={{ flexGrow: part.size }} title={part.title} />)}
    </div>
  );
}

export function A({ to, children, class: cls = "link" }: { to: string; children: ComponentChildren; class?: string }) {
  return (
    <a class={cls} href={href(to)}>
      {children}
    </a>
  );
}
