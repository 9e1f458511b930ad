// The server's HTTP interface, as the page uses it. Addresses are relative, so that a proxy may serve it under a path.

const kKey = "carat.key";

export const apiKey = () => sessionStorage.getItem(kKey) ?? "";

export function setApiKey(key) {
  if (key) sessionStorage.setItem(kKey, key);
  else sessionStorage.removeItem(kKey);
}

export class ApiError extends Error {
  constructor(status, error, retryAfter) {
    super(error.message);
    this.status = status;
    this.code = error.code ?? "";
    this.retryAfter = retryAfter;
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey()) headers.Authorization = "Bearer " + apiKey();
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  if (response.ok) return response;
  const text = await response.text();
  let error = { message: text.slice(0, 300) || `The server answered ${response.status}.` };
  try {
    error = JSON.parse(text).error ?? error;
  } catch {
    // not JSON: a proxy's page
  }
  throw new ApiError(response.status, error, Number(response.headers.get("Retry-After")) || 0);
}

export const getJson = async (path) => (await request(path)).json();
export const getText = async (path) => (await request(path)).text();

// Posts `body` and yields each event of the stream as an object, until [DONE] or the stream's end. A proxy may use
// `session` to send a conversation where its beginning is kept already.
export async function* stream(path, body, session, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Carat-Session": session },
    body: JSON.stringify(body),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The connection ended before the answer did.");
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(500, event.error, 0);
      yield event;
    }
  }
}
