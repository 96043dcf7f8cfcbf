// Files that a user adds to a message, by the button, by pasting or by dragging: images, and texts, which become part
// of the message.

const IMAGES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_TEXT = 256 * 1024;

/** @typedef {{image: string} | {file: {name: string, text: string}} | {refused: string}} Attachment */

function asDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** @param {File} file @param {string} model @param {boolean} takesImages @returns {Promise<Attachment>} */
export async function read(file, model, takesImages) {
  if (IMAGES.includes(file.type)) {
    return takesImages ? { image: await asDataUrl(file) } : { refused: `The model ${model} takes no images.` };
  }
  if (file.size > MAX_TEXT) return { refused: `${file.name} is larger than ${MAX_TEXT / 1024} KiB.` };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { file: { name: file.name, text } };
  } catch {
    // It is no text.
  }
  return { refused: `${file.name} is neither a text nor an image that models read.` };
}

/** Returns the text that the model gets: the files, each in a code block that it cannot end, and the message.
 * @param {string} text @param {{name: string, text: string}[]} files */
export function inlined(text, files = []) {
  const blocks = files.map((file) => {
    const longest = Math.max(2, ...[...file.text.matchAll(/`{3,}/g)].map(([found]) => found.length));
    const fence = "`".repeat(longest + 1);
    return `${file.name}\n${fence}\n${file.text}\n${fence}`;
  });
  return [...blocks, text].filter(Boolean).join("\n\n");
}
