/** Whether a name matches a glob as tokens have them: `*`, `?`, `[ab]`, `[!ab]`; case matters. */
export function globbed(glob: string, name: string): boolean {
  const literal = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const text = glob.replace(/\*|\?|\[(!?)(\]?[^\]]*)\]|[^*?]/gs, (part, not?: string, set?: string) => {
    if (part === "*") return ".*";
    if (part === "?") return ".";
    return set === undefined ? literal(part) : `[${not ? "^" : ""}${literal(set)}]`;
  });
  try {
    return new RegExp(`^${text}$`, "su").test(name);
  } catch {
    return false; // [z-a]: nothing lies between
  }
}
