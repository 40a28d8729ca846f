exception when data_exception or raise_exception then
    raise warning using errcode = sqlstate, message = {kept};
    return null;
