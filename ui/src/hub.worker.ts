// The hub of all tabs. The browser ends it with the last of them.
import { PREFIX } from "./address";
import { Hub, type Wish } from "./hub";

const hub = new Hub(PREFIX, (address) => new EventSource(address));

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  const tab = (told: unknown) => port.postMessage(told);
  port.onmessage = ({ data }: MessageEvent<Wish | null>) => (data ? hub.wish(tab, data) : hub.leave(tab));
};
