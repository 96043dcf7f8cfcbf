// Images that a user adds to a message, by the button, by pasting or by dragging, as data URLs.

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export const ACCEPTED = TYPES.join(",");

export const picturesIn = (files) => [...files].filter((file) => TYPES.includes(file.type));

export function asDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
