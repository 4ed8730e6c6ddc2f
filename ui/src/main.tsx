import { render } from "preact";
import "./style.css";
import { App } from "./app";
import { startKeys } from "./keys";
import { startRouter } from "./router";
import { startTheme } from "./theme";

startTheme();
startRouter();
startKeys();
render(<App />, document.getElementById("app")!);
