// Where the server's API is, for pages and workers alike.
export const PREFIX = "/ui/api/v1";
