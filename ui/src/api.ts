// Asking the server. Every refusal is an `ApiError` with what to do about it; nothing is kept but the session's token.
import { signal } from "@preact/signals";
import { PREFIX } from "./address";
import type { Act, Done, Refusal, Session } from "./types";

export const session = signal<Session | null>(null);
export const needsLogin = signal(false);

export class ApiError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

async function answered<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  let refusal: Partial<Refusal> = {};
  try {
    refusal = (await response.json()) as Refusal;
  } catch {
    // a proxy's answer, perhaps: the code says enough
  }
  if (response.status === 401) needsLogin.value = true;
  throw new ApiError(
    response.status,
    refusal.reason ?? "",
    refusal.message ?? `the server answered ${response.status}`,
    refusal.hint ?? "",
  );
}

async function send<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(PREFIX + path, { credentials: "same-origin", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "Unreachable", "the dashboard's server does not answer", "is `planform dashboard` still running?");
  }
  return answered<T>(response);
}

export function get<T>(path: string, abort?: AbortSignal): Promise<T> {
  return send<T>(path, { signal: abort });
}

export function path(...parts: (string | number)[]): string {
  return "/" + parts.map((part) => encodeURIComponent(String(part))).join("/");
}

export function query(values: Record<string, string | number | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? "?" + new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString() : "";
}

export async function login(body: { code?: string; token?: string }): Promise<void> {
  session.value = await send<Session>("/session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  needsLogin.value = false;
}

export async function whoAmI(): Promise<void> {
  session.value = await get<Session>("/session");
}

export function act(asked: Act): Promise<Done> {
  return send<Done>("/actions", {
    method: "POST",
    headers: { "content-type": "application/json", "x-planform-csrf": session.value?.csrf ?? "" },
    body: JSON.stringify(asked),
  });
}

export async function logout(): Promise<void> {
  await send<Done>("/session", { method: "DELETE", headers: { "x-planform-csrf": session.value?.csrf ?? "" } });
  session.value = null;
  needsLogin.value = true;
}
