#!lua flags=allow-oom
-- Releases the files that a request holds. Files without another hold are deleted.
-- KEYS: media-holds, media-sizes
-- ARGV: prefix of files, the request, then the digest of each file
for at = 3, #ARGV do
  drop(ARGV[at] .. ' ' .. ARGV[2])
end
drop_expired()
return 1
