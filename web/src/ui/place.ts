/** The fragment of the address: which page is shown, and what of it. */
import { signal } from "@preact/signals";

export const place = signal(location.hash);
addEventListener("hashchange", () => (place.value = location.hash));
