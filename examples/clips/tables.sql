create table clips (
  clip   text primary key,
  url    text not null,
  sha256 text not null
);
