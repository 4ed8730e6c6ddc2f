// Addresses. Every screen has one; following a link changes it without asking the server for the page again.
import { computed, signal } from "@preact/signals";

export const BASE = "/ui";
const here = () => decodeSafely(location.pathname).slice(BASE.length) || "/";
export const pathname = signal(here());
export const search = signal(location.search);
export const parts = computed(() => pathname.value.split("/").filter(Boolean));
export const params = computed(() => new URLSearchParams(search.value));

function decodeSafely(text: string): string {
  try {
    return decodeURI(text);
  } catch {
    return text;
  }
}

export function href(to: string): string {
  const [path, rest] = to.split("?", 2);
  const encoded = (path ?? "").split("/").map((part) => encodeURIComponent(part)).join("/");
  return BASE + encoded + (rest ? `?${rest}` : "");
}

function settle(): void {
  pathname.value = here();
  search.value = location.search;
}

export function go(to: string, options: { replace?: boolean } = {}): void {
  const address = href(to);
  if (address === location.pathname + location.search) return;
  if (options.replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  settle();
  if (!options.replace) scrollTo(0, 0);
}

export function setParams(values: Record<string, string>): void {
  const next = new URLSearchParams(search.value);
  for (const [key, value] of Object.entries(values)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  const text = next.toString();
  go(pathname.value + (text ? `?${text}` : ""), { replace: true });
}

export function startRouter(): void {
  addEventListener("popstate", settle);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(BASE)) return;
    event.preventDefault();
    if (link.hash && link.pathname === location.pathname) return;
    const address = link.pathname + link.search;
    if (address !== location.pathname + location.search) {
      history.pushState(null, "", address);
      settle();
      scrollTo(0, 0);
    }
  });
}
