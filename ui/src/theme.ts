// Light or dark: what the system says, unless somebody chose. The choice is all that this page ever stores.
import { signal } from "@preact/signals";

export type Theme = "light" | "dark";
const KEY = "planform-theme";
export const theme = signal<Theme>("light");

function chosen(): Theme | null {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}

export function startTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => apply(chosen() ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", follow);
  follow();
}

function apply(value: Theme): void {
  theme.value = value;
  document.documentElement.dataset.theme = value;
}

export function switchTheme(): void {
  const next = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // a browser that stores nothing still switches
  }
  apply(next);
}
