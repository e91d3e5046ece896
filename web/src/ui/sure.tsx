/** A button that asks once more. */
import { useEffect, useState } from "preact/hooks";

const ASKED_MS = 5000;

export function Sure({ label, text, act }: { label: string; text: string; act: () => void }) {
  const [asked, setAsked] = useState(false);
  useEffect(() => {
    if (!asked) return undefined;
    const timer = setTimeout(() => setAsked(false), ASKED_MS);
    return () => clearTimeout(timer);
  }, [asked]);
  return <button type="button" class="danger" aria-label={asked ? `${label}: sure?` : label} onClick={() => (asked ? (setAsked(false), act()) : setAsked(true))}>{asked ? "Sure?" : text}</button>;
}
