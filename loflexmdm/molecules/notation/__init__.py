"Notations of molecules: bracket SAFE, others, fragments."
