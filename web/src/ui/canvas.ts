/** What pictures on canvases share. */

/** A pen for a canvas of its size on the page, in its pixels. */
export function penOf(element: HTMLCanvasElement): { pen: CanvasRenderingContext2D; width: number; height: number } | null {
  const pen = element.getContext("2d");
  if (!pen) return null;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [element.clientWidth, element.clientHeight];
  element.width = width * ratio;
  element.height = height * ratio;
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

/** Draw now, and again whenever the canvas has another size. */
export function drawnAgain(element: HTMLCanvasElement, draw: () => void): () => void {
  draw();
  const watch = new ResizeObserver(draw);
  watch.observe(element);
  return () => watch.disconnect();
}

/** A text that fits into a width. */
export function fitted(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
