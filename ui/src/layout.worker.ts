import { type Request, layout } from "./layout";

onmessage = (event: MessageEvent<Request>) => postMessage(layout(event.data.root));
