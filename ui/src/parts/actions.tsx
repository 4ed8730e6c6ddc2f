// Actions: what may not be done is shown with the reason; what may be done asks first, names the object, shows the command.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, act } from "../api";
import type { Allowed } from "../types";
import { Command, say } from "./common";
import { Icon } from "./icons";

interface Asking {
  allowed: Allowed;
  kind: string;
  namespace: string;
  name: string;
  value: string;
  done?: () => void;
}

const asking = signal<Asking | null>(null);

export interface Of {
  kind: string;
  namespace?: string;
  name: string;
  value?: (action: string) => string;
  done?: () => void;
}

export function Actions({ actions, of }: { actions: Allowed[]; of: Of }) {
  return (
    <div class="row wrap" role="group" aria-label={`Actions on ${of.name}`}>
      {actions.map((each) => (
        <ActionButton key={each.action} allowed={each} of={of} />
      ))}
    </div>
  );
}

function ActionButton({ allowed, of }: { allowed: Allowed; of: Of }) {
  const open = () => {
    asking.value = {
      allowed,
      kind: of.kind,
      namespace: of.namespace ?? "",
      name: of.name,
      value: of.value?.(allowed.action) ?? "",
      done: of.done,
    };
  };
  // Not `disabled`: a button that cannot be reached by keyboard cannot say why it is off.
  return (
    <button
      type="button"
      class={`button${allowed.danger ? " danger" : ""}`}
      aria-disabled={!allowed.allowed}
      title={allowed.allowed ? allowed.detail : `Not allowed: ${allowed.why}`}
      onClick={open}
      data-action={allowed.action}
    >
      {allowed.label}
    </button>
  );
}

export function ActionDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const reason = useSignal("");
  const error = useSignal<ApiError | null>(null);
  const busy = useSignal(false);
  const current = asking.value;
  useEffect(() => {
    if (current) {
      reason.value = "";
      error.value = null;
      if (!dialog.current?.open) dialog.current?.showModal();
    } else dialog.current?.close();
  }, [current]);
  const close = () => (asking.value = null);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!current || !current.allowed.allowed || busy.value) return;
    if (current.allowed.needsReason && !reason.value.trim()) {
      error.value = new ApiError(400, "", "Give a reason: it is recorded with the action.", "");
      return;
    }
    busy.value = true;
    try {
      const { allowed, kind, namespace, name, value } = current;
      const done = await act({ action: allowed.action, kind, namespace, name, confirm: name, reason: reason.value, value });
      say(done.message);
      current.done?.();
      close();
    } catch (failed) {
      error.value = failed instanceof ApiError ? failed : new ApiError(0, "", String(failed), "");
    } finally {
      busy.value = false;
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="dialog-title">
      {current && (
        <form onSubmit={submit}>
          <h2 id="dialog-title">
            {current.allowed.label}: {current.namespace ? `${current.namespace}/` : ""}
            {current.name}
          </h2>
          {current.allowed.detail && <p class="muted">{current.allowed.detail}</p>}
          {!current.allowed.allowed && (
            <div class="banner warn" role="status">
              <Icon name="warn" />
              <p class="grow break">Not allowed: {current.allowed.why}</p>
            </div>
          )}
          {current.allowed.allowed && (current.allowed.needsReason || current.allowed.danger) && current.kind === "Rollout" && (
            <label>
              Reason
              <textarea rows={2} name="reason" maxLength={1000} value={reason.value} onInput={(event) => (reason.value = event.currentTarget.value)} autofocus />
            </label>
          )}
          {error.value && (
            <div class="banner bad" role="alert">
              <Icon name="cross" />
              <div class="grow break">
                <p>{error.value.message}</p>
                {error.value.hint && <p class="muted">{error.value.hint}</p>}
              </div>
            </div>
          )}
          <div>
            <p class="small muted">The same from a terminal:</p>
            <Command text={current.allowed.command} />
          </div>
          <div class="foot">
            <button type="button" class="button" onClick={close}>
              {current.allowed.allowed ? "Cancel" : "Close"}
            </button>
            {current.allowed.allowed && (
              <button type="submit" class={`button ${current.allowed.danger ? "danger solid" : "primary"}`}>
                {busy.value ? "…" : current.allowed.label}
              </button>
            )}
          </div>
        </form>
      )}
    </dialog>
  );
}
