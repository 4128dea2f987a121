package doctor

import "testing"

// The texts that kernels print, by file, and whether the mitigation works at each entry or return. See mitigationTexts for their
// sources. Texts of the kernels before 6.9 separate their parts by commas.
func TestMitigationTexts(t *testing.T) {
	const works, not = true, false
	for file, texts := range map[string]map[string]bool{
		"meltdown": {
			"Mitigation: PTI": works, "Vulnerable": not, "Not affected": not, "Unknown (XEN PV detected, hypervisor mitigation required)": not,
			"Mitigation: RFI Flush": works, "Mitigation: RFI Flush, L1D private per thread": works, "Mitigation: L1D private per thread": not,
		},
		"spectre_v1": {
			"Mitigation: usercopy/swapgs barriers and __user pointer sanitization":                   not,
			"Vulnerable: __user pointer sanitization and usercopy barriers only; no swapgs barriers": not,
			"Mitigation: __user pointer sanitization":                                                not,
			"Mitigation: __user pointer sanitization, ori31 speculation barrier enabled":             not,
			"Vulnerable, ori31 speculation barrier enabled":                                          not,
		},
		"spectre_v2": {
			"Mitigation: Full generic retpoline, IBPB: conditional, IBRS_FW, STIBP: conditional, RSB filling": not,
			"Mitigation: Full AMD retpoline, IBPB: always-on, STIBP: forced, RSB filling":                     not,
			"Vulnerable, IBPB: disabled, STIBP: disabled":                                                     not,
			"Vulnerable: LFENCE": not, "Mitigation: LFENCE, IBPB: conditional": not,
			"Vulnerable: eIBRS with unprivileged eBPF": not, "Vulnerable: eIBRS+LFENCE with unprivileged eBPF and SMT": not,
			"Mitigation: Retpolines; IBPB: conditional; IBRS_FW; STIBP: always-on; RSB filling; PBRSB-eIBRS: Not affected; BHI: Not affected": not,
			"Mitigation: Retpolines; IBPB: conditional; BHI: Retpoline":                                                                       not,
			"Mitigation: IBRS, IBPB: conditional, STIBP: conditional, RSB filling, PBRSB-eIBRS: Not affected":                                 works,
			"Mitigation: IBRS; IBPB: conditional; RSB filling; PBRSB-eIBRS: Not affected; BHI: Not affected":                                  works,
			"Mitigation: Enhanced IBRS, IBPB: conditional, RSB filling, PBRSB-eIBRS: SW sequence":                                             not,
			"Mitigation: Enhanced IBRS + LFENCE; IBPB: conditional; PBRSB-eIBRS: Vulnerable; BHI: BHI_DIS_S":                                  not,
			"Mitigation: Enhanced / Automatic IBRS + Retpolines; IBPB: conditional; BHI: Vulnerable":                                          not,
			"Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: SW loop, KVM: SW loop":                  works,
			"Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: SW loop, KVM SW loop":                   works,
			"Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: Vulnerable, KVM: SW loop":                                         not,
			"Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: Syscall hardening, KVM: SW loop":                                  not,
			"Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: Vulnerable (Syscall hardening enabled)":                           not,
			"Mitigation: Branch predictor hardening":                                                                                          not, "Mitigation: Branch predictor hardening, BHB": works, "Mitigation: Branch predictor hardening, but not BHB": not,
			"Mitigation: CSV2, BHB": works, "Mitigation: CSV2, but not BHB": not, "Vulnerable: Unprivileged eBPF enabled": works,
			"Mitigation: Indirect branch serialisation (kernel only)": not, "Mitigation: Indirect branch cache disabled, Software link stack flush": not,
			"Mitigation: Indirect branch serialisation (kernel only), Indirect branch cache disabled":                         not,
			"Mitigation: Software count cache flush (hardware accelerated), Software link stack flush (hardware accelerated)": not,
			"Mitigation: Software count cache flush": not, "Mitigation: Branch predictor state flush": works,
			"Mitigation: etokens": not, "Mitigation: execute trampolines": not, "Mitigation: limited branch prediction": works,
		},
		"spec_store_bypass": {
			"Mitigation: Speculative Store Bypass disabled": not, "Mitigation: Speculative Store Bypass disabled via prctl": not,
			"Mitigation: Speculative Store Bypass disabled via prctl and seccomp": not,
			"Mitigation: Kernel entry/exit barrier (eieio)":                       works, "Mitigation: Kernel entry/exit barrier (hwsync)": works,
			"Mitigation: Kernel entry/exit barrier (fallback)": works, "Mitigation: Kernel entry/exit barrier (unknown)": works,
		},
		"l1tf": {
			"Mitigation: PTE Inversion": not, "Mitigation: PTE Inversion; VMX: EPT disabled": not, "Mitigation: PTE Inversion; VMX: vulnerable": not,
			"Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable": not, "Mitigation: PTE Inversion; VMX: cache flushes, SMT disabled": not,
			"Mitigation: PTE Inversion; VMX: flush not necessary, SMT disabled": not, "Mitigation: RFI Flush": works,
		},
		"mds": {
			"Mitigation: Clear CPU buffers; SMT vulnerable": works, "Mitigation: Clear CPU buffers; SMT mitigated": works,
			"Mitigation: Clear CPU buffers; SMT Host state unknown": works, "Vulnerable; SMT vulnerable": not,
			"Vulnerable: Clear CPU buffers attempted, no microcode; SMT disabled": works,
		},
		"tsx_async_abort": {
			"Mitigation: TSX disabled": not, "Mitigation: Clear CPU buffers; SMT disabled": works,
			"Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable": works,
		},
		"mmio_stale_data": {
			"Mitigation: Clear CPU buffers; SMT vulnerable": not, "Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown": not,
			"Unknown: No mitigations": not,
		},
		"itlb_multihit": {
			"KVM: Mitigation: VMX unsupported": not, "KVM: Mitigation: VMX disabled": not, "KVM: Mitigation: Split huge pages": not, "KVM: Vulnerable": not,
			"Processor vulnerable": not,
		},
		"srbds": {
			"Mitigation: Microcode": not, "Vulnerable: No microcode": not, "Mitigation: TSX disabled": not, "Unknown: Dependent on hypervisor status": not,
		},
		"retbleed": {
			"Mitigation: untrained return thunk; SMT enabled with STIBP protection": works, "Mitigation: untrained return thunk; SMT disabled": works,
			"Mitigation: IBPB; SMT vulnerable": works, "Mitigation: IBRS": works, "Mitigation: Enhanced IBRS": not, "Mitigation: Stuffing": works,
			"Vulnerable: untrained return thunk / IBPB on non-AMD based uarch": works, "Vulnerable": not,
		},
		"spec_rstack_overflow": {
			"Mitigation: safe RET": works, "Mitigation: safe RET, no microcode": works, "Mitigation: Safe RET": works, "Vulnerable: Safe RET, no microcode": works,
			"Vulnerable: Microcode, no safe RET": not, "Mitigation: microcode": not, "Vulnerable: No microcode": not, "Mitigation: IBPB": works,
			"Mitigation: IBPB, no microcode": works, "Mitigation: IBPB on VMEXIT only": not, "Mitigation: SMT disabled": not, "Mitigation: Reduced Speculation": not,
			"Vulnerable, no microcode": not,
		},
		"gather_data_sampling": {
			"Mitigation: Microcode": not, "Mitigation: Microcode (locked)": not, "Mitigation: AVX disabled, no microcode": not, "Vulnerable: No microcode": not,
			"Unknown: Dependent on hypervisor status": not,
		},
		"reg_file_data_sampling":    {"Mitigation: Clear Register File": works, "Vulnerable: No microcode": not},
		"indirect_target_selection": {"Mitigation: Aligned branch/return thunks": not, "Mitigation: Retpolines, Stuffing RSB": works, "Mitigation: Vulnerable, KVM: Not affected": not},
		"tsa": {
			"Mitigation: Clear CPU buffers": works, "Mitigation: Clear CPU buffers: user/kernel boundary": works, "Mitigation: Clear CPU buffers: VM": not,
			"Vulnerable: Clear CPU buffers attempted, no microcode": works, // mitigations leaves this out on bare metal
		},
		"vmscape":       {"Mitigation: IBPB before exit to userspace": not, "Mitigation: IBPB on VMEXIT": not, "Mitigation: Clear BHB before exit to userspace": not},
		"old_microcode": {"Vulnerable": not, "Unknown: running under hypervisor": not},
		"ghostwrite":    {"Mitigation: xtheadvector disabled": not},
	} {
		for text, want := range texts {
			if got, known := atEntry(file, text); got != want || !known {
				t.Errorf("%s: %s: got %t, known %t; want %t", file, text, got, known, want)
			}
		}
	}
	for _, text := range []string{"Mitigation: Novel barrier", "Mitigation: PTIX", "Mitigation: BHBs"} {
		if _, known := atEntry("spectre_v2", text); known {
			t.Errorf("%s: known", text)
		}
	}
}
